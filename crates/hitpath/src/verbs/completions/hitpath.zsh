#compdef hitpath
# Completion of hitpath for zsh: asks `hitpath complete` at each word.

_hitpath() {
    local line kind word meaning files hint ret=1
    local -a fields whole parts
    # A key may be among them, and others see the arguments of a process; printf is none.
    for line in "${(@f)$(printf '%s\0' "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" |
        ${~words[1]} complete --stdin 2>/dev/null)}"; do
        fields=("${(@ps:\t:)line}")
        kind=$fields[1] word=${fields[2]//:/\\:} meaning=$fields[3]
        case $kind in
        w) whole+=("$word${meaning:+:$meaning}") ;;
        p) parts+=("$word${meaning:+:$meaning}") ;;
        f) files=1 ;;
        h) hint=$meaning ;;
        esac
    done
    (( $#whole )) && _describe -V 'hitpath' whole && ret=0
    (( $#parts )) && _describe -V 'hitpath' parts -S '' && ret=0
    [[ -n $files ]] && _files && ret=0
    [[ -n $hint && $ret = 1 ]] && _message "$hint"
    return ret
}

if [ "$funcstack[1]" = "_hitpath" ]; then
    _hitpath "$@"
else
    compdef _hitpath hitpath
fi
