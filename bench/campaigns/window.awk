# What a window's counters say: files with the counters before and after it, a line each, and then a report in the form
# of `bellows bench … --json`. The program beside this one has its figures in `report()`.

FILENAME != ARGV[ARGC - 1] { before[$1] = $2; next }
{ after[$1] = $2 }

function since(counter) {
    return after[counter] - before[counter]
}

# The seconds between the two times of a program.
function seconds(program) {
    return since(program ".time") / 1e9
}

# The share of the window that a program had its processor ("ran"), or waited for it: of its thread that ran most.
function share(program, what, counter, thread, most, found) {
    most = -1
    for (counter in after) {
        if (index(counter, program ".ran.") == 1 && since(counter) > most) {
            most = since(counter)
            thread = substr(counter, length(program ".ran.") + 1)
            found = since(program "." what "." thread)
        }
    }
    return found / 1e9 / seconds(program)
}

# A figure of the report.
function figure(name, unit, value) {
    figures = figures (figures == "" ? "" : ", ")
    figures = figures sprintf("{\"case\": \"%s\", \"unit\": \"%s\", \"median\": %.6g}", name, unit, value)
}

# The window does not count.
function disturbed(why) {
    printf "a window that does not count: %s\n", why >"/dev/stderr"
    is_disturbed = 1
}

END {
    report()
    if (is_disturbed && ENVIRON["ANY_WINDOW"] == "") {
        exit 75
    }
    printf "{\"bench\": \"%s\", \"results\": [%s]}\n", bench, figures
}
