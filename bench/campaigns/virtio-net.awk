# The figures of virtio-net.sh. `direction` is that of the packets.

function report(packets, rate, cost, driver_cost, kind, refused) {
    bench = "virtio-net"
    packets = since(direction == "from-driver" ? "driver.sent" : "driver.received")
    rate = packets / seconds("driver") / 1e6
    refused = since("driver.refused")
    # Of a testpmd all rounds that moved packets, of Bellows the calls of two apps in sampled breaths.
    for (kind = 1; kind <= 4; kind++) {
        if (since("backend.moved." kind) > 0) {
            cost += since("backend.clocks." kind) / since("backend.moved." kind)
        }
    }
    driver_cost = since("driver.clocks.1") / packets
    figure("rate", "Mpps", rate)
    figure("back end", "clocks/packet", cost)
    figure("driver", "clocks/packet", driver_cost)
    figure("rate by the back end", "Mpps by the back end", since("backend.packets") / seconds("backend") / 1e6)
    figure("refused", "ratio", refused > 0 ? refused / (refused + packets) : 0)
    figure("driver on its processor", "ratio", share("driver", "ran"))
    figure("back end on its processor", "ratio", share("backend", "ran"))
    # The side that is busy all the time is the limit.
    figure("driver busy", "ratio", driver_cost * rate / after["driver.mhz"])
    figure("back end busy", "ratio", cost * rate / after["driver.mhz"])
    if (share("driver", "waited") > 0.08) {
        disturbed("the driver waited for its processor")
    }
    if (share("backend", "waited") > 0.08) {
        disturbed("the back end waited for its processor")
    }
}
