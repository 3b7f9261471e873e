"""The library that completes the XSAVE area for the guest's kernel, on a traced child."""

import errno

import pytest

from harness import xstate
from harness.failure import CommandFailed
from harness.needs import need

SSE, AVX = 1 << 1, 1 << 2
WITHOUT_AVX, WITHIN_AVX, WITH_AVX = 576, 704, 832
"""Lengths that end before, within and behind the upper halves of AVX's registers."""


@pytest.fixture(scope="module", autouse=True)
def whole():
    """How many bytes this machine's area has."""
    try:
        size = xstate.area()
    except CommandFailed as error:
        need(False, f"ptrace: {error}")
    need(size is not None and size >= WITH_AVX, "needs a processor with AVX")
    return size


def lengths(whole):
    """Lengths that are too short on this machine."""
    return [length for length in (WITHOUT_AVX, WITHIN_AVX, WITH_AVX) if length < whole]


def test_linux_refuses_less_than_the_whole_area(whole):
    for length in lengths(whole):
        assert xstate.set_first(length, preloaded=False)["errno"] == errno.EFAULT


def test_the_library_sets_what_is_given_and_keeps_the_rest(whole):
    for length in lengths(whole):
        result = xstate.set_first(length, preloaded=True)
        assert result["errno"] == 0 and result["area"] == whole
        assert result["said"] == f"xstate: {length} bytes of {whole} given\n"
        assert result["xmm_set"] and result["rest_kept"]
        with_avx = length >= WITH_AVX
        assert (result["ymm_high_set"], result["ymm_high_kept"]) == (with_avx, not with_avx)
        # The header that is given has no bit but these. Those of the other components stay.
        mine = 1 | SSE | (AVX if with_avx else 0)
        assert result["in_use_after"] & mine == mine
        assert result["in_use_after"] & ~mine == result["in_use_before"] & ~mine
        assert result["in_use_after"] & AVX


def test_the_library_hands_on_a_whole_area(whole):
    result = xstate.set_first(whole, preloaded=True)
    assert result["errno"] == 0 and result["xmm_set"] and result["ymm_high_set"]


def test_the_library_refuses_an_area_without_its_header():
    assert xstate.set_first(575, preloaded=True)["errno"] == errno.EFAULT


def test_a_wrong_choice_is_told(monkeypatch):
    monkeypatch.setenv(xstate.VARIABLE, "yes")
    with pytest.raises(CommandFailed, match="complete or as-it-is"):
        xstate.must_be_completed()
