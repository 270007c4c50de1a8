# The figures of interfaces.sh. `traffic` and `forwarder` are its words.

# The share of the window that a processor was in a state, which is counted in ticks.
function state(processor, what) {
    return since(processor "." what) / 100 / seconds("sink")
}

# A time of the forwarder for each packet at the sink, in nanoseconds.
function time_of_packet(what) {
    return since("forwarder." what) / 100 * 1e9 / since("sink.received")
}

function report(is_tcp, ran, waited, processor, processors, what, states) {
    bench = "interfaces"
    is_tcp = traffic ~ /^tcp/
    if (is_tcp) {
        figure("throughput", "Gb/s", after["sink.kbits"] / 1e6)
    } else {
        figure("rate", "Mpps", since("sink.received") / seconds("sink") / 1e6)
    }
    # System time contains the software interrupts on the forwarder's processor, among them the sink's side of sending.
    if ("forwarder.user" in after) {
        figure("user time", "ns/packet", time_of_packet("user"))
        figure("system time", "ns/packet", time_of_packet("system"))
        figure("user and system time", "ns/packet", time_of_packet("user") + time_of_packet("system"))
    }
    figure("offered", "Mpps offered", since("source.sent") / seconds("sink") / 1e6)
    split("generator forwarder", processors, " ")
    split("softirq idle stolen", states, " ")
    for (processor = 1; processor <= 2; processor++) {
        for (what = 1; what <= 3; what++) {
            figure(processors[processor] "'s processor " states[what], "ratio", state(processors[processor], states[what]))
        }
        if (state(processors[processor], "stolen") > 0.05) {
            disturbed("the host took the " processors[processor] "'s processor")
        }
    }
    if (forwarder == "bridge") {
        return
    }
    if (forwarder == "bridge-steered") {
        # The kernel does not say how long its software interrupts waited: the time that others had is an estimate.
        ran = state("forwarder", "softirq")
        waited = 1 - ran - state("forwarder", "idle") - state("forwarder", "stolen")
        waited = waited > 0 ? waited : 0
    } else {
        ran = share("forwarder", "ran")
        waited = share("forwarder", "waited")
    }
    figure("forwarder on its processor", "ratio", ran)
    figure("forwarder waits", "ratio", waited)
    # Beside iperf3 it waits for the software interrupts of its own traffic, which the kernel defers to a thread.
    if (!is_tcp && waited > 0.08) {
        disturbed("the forwarder waited for its processor")
    }
}
