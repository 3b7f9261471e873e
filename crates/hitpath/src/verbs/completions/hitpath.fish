# Completion of hitpath for fish: asks `hitpath complete` at each word.

function __hitpath_complete
    set -l words (commandline -opc)
    set -l last (string replace -r '^[\'"]' '' -- (commandline -ct))
    set -l program $words[1]
    set -e words[1]
    # A key may be among them, and others see the arguments of a process; printf is none.
    for line in (printf '%s\0' $words "$last" | $program complete --stdin 2>/dev/null)
        set -l fields (string split -m 2 \t -- $line)
        switch $fields[1]
            case w p
                printf '%s\t%s\n' $fields[2] $fields[3]
            case f
                __fish_complete_path "$last"
        end
    end
end

complete -c hitpath -f -a '(__hitpath_complete)'
