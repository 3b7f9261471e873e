# Completion of hitpath for bash: asks `hitpath complete` at each word.

_hitpath() {
    local line=${COMP_LINE:0:COMP_POINT} words=() cur rest part at quoted= lines
    # readline ends words at `=` and `:` too; those without a blank between are one.
    rest=$line
    for ((at = 0; at <= COMP_CWORD; at++)); do
        part=${COMP_WORDS[at]}
        local trimmed=${rest#"${rest%%[![:space:]]*}"}
        [ "$at" = "$COMP_CWORD" ] && part=$trimmed
        if [ "$at" -gt 0 ] && [ -n "$rest" ] && [ "$trimmed" = "$rest" ]; then
            words[${#words[@]} - 1]+=$part
        else
            words+=("$part")
        fi
        rest=${trimmed#"$part"}
    done
    cur=${words[${#words[@]} - 1]}
    case $cur in
    \'* | \"*) quoted=1 cur=${cur:1} ;;
    esac
    # Words that are whole have lost their quotes to nobody yet.
    local before=()
    for ((at = 1; at < ${#words[@]} - 1; at++)); do
        part=${words[at]}
        case $part in
        \'*\' | \"*\") part=${part:1:${#part}-2} ;;
        esac
        before+=("$part")
    done
    # A key may be among them, and others see the arguments of a process; printf is none.
    lines=$(printf '%s\0' "${before[@]}" "$cur" |
        "${words[0]/#\~/$HOME}" complete --stdin 2>/dev/null) || return

    # What readline takes for the word begins behind the last `=` or `:`.
    local done=
    if [ -z "$quoted" ]; then
        case $COMP_WORDBREAKS in *:*) [[ $cur == *:* ]] && done=${cur%"${cur##*:}"} ;; esac
        local upto=${cur%"${cur##*=}"}
        case $COMP_WORDBREAKS in *=*) [ ${#upto} -gt ${#done} ] && done=$upto ;; esac
    fi
    COMPREPLY=()
    local kind word meaning goes_on= files=
    while IFS=$'\t' read -r kind word meaning; do
        case $kind in
        w) COMPREPLY+=("${word#"$done"} ") ;;
        p) COMPREPLY+=("${word#"$done"}") goes_on=1 ;;
        f) files=1 ;;
        esac
    done <<<"$lines"
    if [ -n "$goes_on" ]; then
        compopt -o nospace 2>/dev/null
    else
        COMPREPLY=("${COMPREPLY[@]% }")
    fi
    if [ -n "$files" ]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "${cur#"$done"}")
    fi
}

if [[ ${BASH_VERSINFO[0]} -gt 4 || (${BASH_VERSINFO[0]} -eq 4 && ${BASH_VERSINFO[1]} -ge 4) ]]; then
    complete -o nosort -F _hitpath hitpath
else
    complete -F _hitpath hitpath
fi
