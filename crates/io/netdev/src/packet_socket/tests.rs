//! Tests against the kernel, with pairs of interfaces in network namespaces of their own.

use std::time::SystemTime;

use bellows_testkit::eventually;
use bellows_testkit::skips::skip_here;
use bellows_testkit::wait::{Deadline, eventually_without_faults};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;
use crate::PortError;
use crate::test_net::{frame, gso_packet, in_namespace, index, ip, veth};
use bellows_sys::wake::sleep_until_readable;

fn sender(interface: u32) -> Sender {
    Sender::open(interface, &SenderOptions::default()).unwrap()
}

fn receiver(interface: u32) -> Receiver {
    Receiver::open(interface, &ReceiverOptions::default()).unwrap()
}

/// Sends frames, with virtio-net headers if they have any, until the kernel has taken all. While the processor is busy
/// elsewhere, the queue of its received frames may be full (`net.core.netdev_max_backlog`).
fn send_all(sender: &mut Sender, frames: &[(Option<[u8; 10]>, &[u8])]) {
    let deadline = Deadline::new("the kernel takes the frames");
    let mut rest = frames;
    while !rest.is_empty() {
        deadline.check();
        let sent = sender.send(rest.iter().copied());
        assert!(matches!(sent.error, None | Some(PortError::Full | PortError::Dropped)), "{sent:?}");
        rest = &rest[sent.taken..];
    }
}

/// The same for frames without headers.
fn send(sender: &mut Sender, frames: &[Vec<u8>]) {
    let frames: Vec<_> = frames.iter().map(|frame| (None, frame.as_slice())).collect();
    send_all(sender, &frames);
}

/// Waits for the next frame, and does something with it.
fn receive<T>(receiver: &mut Receiver, work: impl FnOnce(Frame<'_>) -> T) -> T {
    let deadline = Deadline::new("a frame");
    loop {
        deadline.check();
        // A borrow that is returned would last for the whole loop.
        if receiver.word().load(std::sync::atomic::Ordering::Acquire) != 0 {
            return work(receiver.next_frame().unwrap());
        }
        std::thread::yield_now();
    }
}

fn receive_bytes(receiver: &mut Receiver) -> Vec<u8> {
    receive(receiver, |mut frame| frame.bytes().to_vec())
}

#[test]
fn frames_arrive_as_they_were_sent() {
    in_namespace("frames_arrive_as_they_were_sent", || {
        let [near, far] = veth();
        let (mut sender, mut receiver) = (sender(near), receiver(far));
        assert!(receiver.next_frame().is_none());
        // Several times around the ring.
        for round in 0..40 {
            let frames: Vec<Vec<u8>> =
                (0..150).map(|index| frame(14 + (round * 150 + index) % 1500, index as u8)).collect();
            send(&mut sender, &frames);
            for frame in &frames {
                receive(&mut receiver, |mut received| {
                    assert_eq!((received.length(), received.original_length()), (frame.len(), frame.len()));
                    assert_eq!(received.bytes(), frame);
                    assert_eq!((received.vlan(), received.virtio_header()), (None, None));
                    assert_eq!(received.packet_type(), PacketType::OtherHost);
                    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
                    assert!(now.abs_diff(received.time()).as_secs() < 600);
                });
            }
        }
        assert_eq!(receiver.statistics().unwrap(), Statistics { received: 6000, dropped: 0 });
        assert_eq!(receiver.statistics().unwrap(), Statistics::default());
    });
}

#[test]
fn the_descriptor_is_readable_while_there_is_a_frame() {
    in_namespace("the_descriptor_is_readable_while_there_is_a_frame", || {
        let [near, far] = veth();
        let (mut sender, mut receiver) = (sender(near), receiver(far));
        let is_readable = |receiver: &Receiver| {
            sleep_until_readable(&[receiver.as_fd()], Some(std::time::Duration::ZERO)).unwrap()[0]
        };
        assert!(!is_readable(&receiver));
        send(&mut sender, &[frame(60, 0), frame(60, 1)]);
        eventually("readable", || is_readable(&receiver));
        receive_bytes(&mut receiver);
        receive(&mut receiver, |frame| frame.release());
        assert!(!is_readable(&receiver));
    });
}

#[test]
fn frames_longer_than_a_slot_come_whole_and_in_order() {
    in_namespace("frames_longer_than_a_slot_come_whole_and_in_order", || {
        let [near, far] = veth();
        ip("link set near mtu 9000");
        ip("link set far mtu 9000");
        let (mut sender, mut receiver) = (sender(near), receiver(far));
        let frames: Vec<Vec<u8>> = (0..60).map(|index| frame([60, 9014, 1500, 4000][index % 4], index as u8)).collect();
        for round in 0..40 {
            send(&mut sender, &frames);
            for (index, frame) in frames.iter().enumerate() {
                receive(&mut receiver, |mut received| {
                    assert_eq!(received.length(), frame.len());
                    match (index / 4 + round) % 4 {
                        0 => assert_eq!(received.bytes(), frame),
                        1 => {
                            assert_eq!(received.bytes(), frame);
                            assert_eq!(received.bytes(), frame, "a second time");
                            let mut copy = vec![0; 10_000];
                            assert_eq!(received.copy_to(&mut copy), frame.len());
                            assert_eq!(&copy[..frame.len()], frame);
                        }
                        2 => {
                            let mut copy = vec![0; 5000];
                            let length = received.copy_to(&mut copy);
                            assert_eq!(length, frame.len().min(5000));
                            assert_eq!(copy[..length], frame[..length]);
                        }
                        _ => received.release(),
                    }
                });
            }
        }
        assert_eq!(receiver.statistics().unwrap(), Statistics { received: 2400, dropped: 0 });
    });
}

#[test]
fn long_frames_beyond_the_receive_buffer_are_truncated() {
    in_namespace("long_frames_beyond_the_receive_buffer_are_truncated", || {
        let [near, far] = veth();
        ip("link set near mtu 9000");
        ip("link set far mtu 9000");
        let options = ReceiverOptions { receive_buffer: 20_000, ..ReceiverOptions::default() };
        let (mut sender, mut receiver) = (sender(near), Receiver::open(far, &options).unwrap());
        let granted = receiver.receive_buffer().unwrap();
        assert!((20_000..=40_000).contains(&granted), "{granted}");
        let frames: Vec<Vec<u8>> = (0..20).map(|index| frame(9014, index)).collect();
        send(&mut sender, &frames);
        let mut whole = 0;
        for (index, frame) in frames.iter().enumerate() {
            receive(&mut receiver, |mut received| {
                assert_eq!(received.original_length(), 9014);
                let length = received.length();
                assert_eq!(received.bytes(), &frame[..length]);
                assert!(length == 9014 || (1518..2000).contains(&length), "{length}");
                assert!(length == 9014 || index > 0, "the first fits");
                whole += usize::from(length == 9014);
            });
        }
        assert!((1..10).contains(&whole), "{whole}");
        send(&mut sender, &frames[..1]);
        assert_eq!(receive_bytes(&mut receiver), frames[0], "there is room again");
    });
}

#[test]
fn gso_packets_and_partial_checksums_pass_whole() {
    in_namespace("gso_packets_and_partial_checksums_pass_whole", || {
        let [near, far] = veth();
        for bypass_qdisc in [false, true] {
            let options = SenderOptions { virtio_header: true, bypass_qdisc, ..SenderOptions::default() };
            let mut sender = Sender::open(near, &options).unwrap();
            let options = ReceiverOptions { virtio_header: true, ..ReceiverOptions::default() };
            let mut receiver = Receiver::open(far, &options).unwrap();
            let (header, packet) = gso_packet(65_400);
            let small = frame(60, 9);
            let frames = [(None, small.as_slice()), (Some(header), &packet), (None, &small), (Some(header), &packet)];
            for _ in 0..50 {
                send_all(&mut sender, &frames);
                for (header, bytes) in frames {
                    receive(&mut receiver, |mut received| {
                        assert_eq!(received.virtio_header(), Some(header.unwrap_or_default()));
                        assert_eq!(received.has_partial_checksum(), header.is_some());
                        assert_eq!(received.length(), bytes.len());
                        assert_eq!(received.bytes(), bytes);
                    });
                }
            }
        }
    });
}

#[test]
fn vlan_tags_are_reported() {
    in_namespace("vlan_tags_are_reported", || {
        let [near, far] = veth();
        let (mut sender, mut receiver) = (sender(near), receiver(far));
        // The kernel allows four bytes more than the MTU for tags of 802.1Q alone.
        for (tpid, tci, length) in [(0x8100u16, 0xa064u16, 1518), (0x88a8, 7, 1514)] {
            let mut tagged = frame(length, 1);
            tagged[12..14].copy_from_slice(&tpid.to_be_bytes());
            tagged[14..16].copy_from_slice(&tci.to_be_bytes());
            tagged[16..18].copy_from_slice(&[0x88, 0xb5]);
            send(&mut sender, &[tagged.clone()]);
            receive(&mut receiver, |mut received| {
                // The tag is where the kernel puts it: in the frame, or beside it.
                let mut bytes = received.bytes().to_vec();
                if let Some(vlan) = received.vlan() {
                    let tag = [vlan.tpid.to_be_bytes(), vlan.tci.to_be_bytes()].concat();
                    bytes.splice(12..12, tag);
                }
                assert_eq!(bytes, tagged);
                assert_eq!(received.vlan(), Some(Vlan { tpid, tci }));
            });
        }
    });
}

#[test]
fn outgoing_frames_are_ignored_unless_asked_for() {
    in_namespace("outgoing_frames_are_ignored_unless_asked_for", || {
        let [near, far] = veth();
        let fanout = Fanout { group: None, mode: FanoutMode::Hash, defragment: false, rollover: false };
        let open = |outgoing, fanout| {
            Receiver::open(near, &ReceiverOptions { outgoing, fanout, ..ReceiverOptions::default() }).unwrap()
        };
        let mut ignoring = [open(false, None), open(false, Some(fanout))];
        let mut taking = [open(true, None), open(true, Some(fanout))];
        let hidden = SenderOptions { bypass_qdisc: true, ..SenderOptions::default() };
        let mut hidden = Sender::open(near, &hidden).unwrap();
        // The last frame shows that the one before it has been ignored.
        send(&mut sender(near), &[frame(60, 1)]);
        send(&mut hidden, &[frame(60, 2)]);
        send(&mut sender(far), &[frame(60, 3)]);
        for receiver in &mut taking {
            receive(receiver, |mut received| {
                assert_eq!(received.packet_type(), PacketType::Outgoing);
                assert_eq!(received.bytes(), frame(60, 1));
            });
        }
        for receiver in taking.iter_mut().chain(&mut ignoring) {
            assert_eq!(receive_bytes(receiver), frame(60, 3), "what bypasses the queue is not seen");
        }
    });
}

#[test]
fn the_sockets_of_a_group_share_the_frames() {
    in_namespace("the_sockets_of_a_group_share_the_frames", || {
        let [near, far] = veth();
        let fanout = Fanout { group: None, mode: FanoutMode::LoadBalance, defragment: false, rollover: true };
        let options = |fanout| ReceiverOptions { fanout: Some(fanout), ..ReceiverOptions::default() };
        let first = Receiver::open(far, &options(fanout)).unwrap();
        let group = first.fanout_group();
        assert!(group.is_some());
        let second = Receiver::open(far, &options(Fanout { group, ..fanout })).unwrap();
        assert_eq!(second.fanout_group(), group);
        let other_mode = Fanout { group, mode: FanoutMode::Hash, ..fanout };
        let error = Receiver::open(far, &options(other_mode)).unwrap_err();
        assert!(error.to_string().contains("fanout group"), "{error}");
        let other_group = Receiver::open(far, &options(fanout)).unwrap();
        assert_ne!(other_group.fanout_group(), group, "a group of its own");
        let mut sender = sender(near);
        send(&mut sender, &(0..100).map(|index| frame(60, index)).collect::<Vec<_>>());
        let mut members = [first, second].map(|member| (member, 0));
        eventually("all frames", || {
            for (member, count) in &mut members {
                while member.next_frame().is_some() {
                    *count += 1;
                }
            }
            members.iter().map(|(_, count)| count).sum::<usize>() == 100
        });
        assert_eq!(members.map(|(_, count)| count), [50, 50]);
        assert_eq!(other_group.statistics().unwrap().received, 100);
        assert_eq!(receiver(far).fanout_group(), None);
    });
}

#[test]
fn a_full_ring_counts_what_is_dropped() {
    in_namespace("a_full_ring_counts_what_is_dropped", || {
        let [near, far] = veth();
        let options = ReceiverOptions { slots: 1, ..ReceiverOptions::default() };
        let (mut sender, mut receiver) = (sender(near), Receiver::open(far, &options).unwrap());
        let slots = receiver.slots();
        assert!((100..200).contains(&slots), "a block");
        let frames: Vec<Vec<u8>> = (0..slots + 30).map(|index| frame(100, index as u8)).collect();
        send(&mut sender, &frames);
        let mut counts = Statistics::default();
        eventually_without_faults("all counted", || {
            let more = receiver.statistics().unwrap();
            counts = Statistics { received: counts.received + more.received, dropped: counts.dropped + more.dropped };
            match counts.received + counts.dropped == frames.len() as u32 {
                true => String::new(),
                false => format!("{counts:?} of {} frames\n{}", frames.len(), ip("-s -s link")),
            }
        });
        assert_eq!(counts.received as usize, slots);
        for frame in &frames[..slots] {
            assert_eq!(&receive_bytes(&mut receiver), frame);
        }
        assert!(receiver.next_frame().is_none());
        send(&mut sender, &frames[..1]);
        assert_eq!(receive_bytes(&mut receiver), frames[0], "there is room again");
    });
}

#[test]
fn an_interface_that_is_set_down_or_deleted_is_reported() {
    in_namespace("an_interface_that_is_set_down_or_deleted_is_reported", || {
        let [near, far] = veth();
        let (mut from_near, mut receiver) = (sender(near), receiver(far));
        assert!(receiver.take_error().is_none());
        ip("link set far down");
        let polled = sleep_until_readable(&[receiver.as_fd()], Some(bellows_testkit::wait::PATIENCE)).unwrap();
        assert_eq!(polled, [true]);
        assert!(matches!(receiver.take_error(), Some(PortError::Down)));
        assert!(receiver.take_error().is_none(), "said once");
        let mut from_far = sender(far);
        let small = frame(60, 0);
        let sent = from_far.send([(None, small.as_slice())]);
        assert!(sent.taken == 0 && matches!(sent.error, Some(PortError::Down)), "{sent:?}");
        let mut opened_down = self::receiver(far);
        assert!(matches!(opened_down.take_error(), Some(PortError::Down)));
        ip("link set far up");
        eventually("the other end's carrier", || ip("-o link show dev near").contains("state UP"));
        for receiver in [&mut receiver, &mut opened_down] {
            assert!(receiver.take_error().is_none());
            send(&mut from_near, std::slice::from_ref(&small));
            assert_eq!(receive_bytes(receiver), small);
        }
        receive_bytes(&mut receiver);
        // Frames from before the end are still there.
        send(&mut from_near, &[frame(60, 7)]);
        eventually("the frame", || receiver.word().load(std::sync::atomic::Ordering::Relaxed) != 0);
        ip("link delete far");
        assert!(matches!(receiver.take_error(), Some(PortError::Gone)));
        assert_eq!(receive_bytes(&mut receiver), frame(60, 7));
        assert!(receiver.next_frame().is_none());
        for mut sender in [from_near, from_far] {
            let sent = sender.send([(None, small.as_slice())]);
            assert!(sent.taken == 0 && matches!(sent.error, Some(PortError::Gone)), "{sent:?}");
        }
        let error = Receiver::open(far, &ReceiverOptions::default()).unwrap_err();
        assert!(error.to_string().contains("ip link"), "{error}");
        assert!(Sender::open(far, &SenderOptions::default()).is_err());
    });
}

#[test]
fn a_frame_that_is_refused_is_known() {
    in_namespace("a_frame_that_is_refused_is_known", || {
        let [near, far] = veth();
        let (mut sender, mut receiver) = (sender(near), receiver(far));
        let sizes = [60, 1514, 1515, 60, 13, 60];
        let frames = sizes.map(|length| frame(length, length as u8));
        let mut rest = frames.as_slice();
        let mut errors = Vec::new();
        while !rest.is_empty() {
            let Sent { taken, error } = sender.send(rest.iter().map(|frame| (None, frame.as_slice())));
            let is_full = matches!(error, Some(PortError::Full | PortError::Dropped));
            errors.extend(error.iter().filter(|_| !is_full).map(|error| (rest.len() - taken, error.to_string())));
            rest = &rest[(taken + usize::from(!is_full)).min(rest.len())..];
        }
        let too_long = (4, PortError::TooLong.to_string());
        assert_eq!(errors, [too_long, (2, PortError::Invalid.to_string())]);
        for length in [60, 1514, 60, 60] {
            assert_eq!(receive_bytes(&mut receiver).len(), length);
        }
    });
}

#[test]
fn a_queueing_discipline_that_delays_frames_fills_the_ring_and_loses_none() {
    let test = "a_queueing_discipline_that_delays_frames_fills_the_ring_and_loses_none";
    in_namespace(test, || {
        let [near, far] = veth();
        let limit = "qdisc add dev near root tbf rate 4mbit burst 4kb limit 4mb";
        if !std::process::Command::new("tc").args(limit.split(' ')).status().is_ok_and(|status| status.success()) {
            return skip_here(test, "the kernel or iproute2 has no queueing discipline `tbf`");
        }
        let (mut sender, mut receiver) = (sender(near), receiver(far));
        let frames: Vec<Vec<u8>> = (0..1_000).map(|index| frame(200, index as u8)).collect();
        let (mut rest, mut refusals) = (&frames[..], 0);
        let deadline = Deadline::new("the queueing discipline takes the frames");
        while !rest.is_empty() {
            deadline.check();
            let sent = sender.send(rest.iter().map(|frame| (None, frame.as_slice())));
            assert!(matches!(sent.error, None | Some(PortError::Full)), "{sent:?}");
            refusals += u32::from(sent.error.is_some());
            rest = &rest[sent.taken..];
        }
        assert!(refusals > 0, "the ring was never full");
        for frame in &frames {
            assert_eq!(receive_bytes(&mut receiver), *frame);
        }
    });
}

#[test]
fn promiscuity_ends_with_the_socket() {
    in_namespace("promiscuity_ends_with_the_socket", || {
        let [_, far] = veth();
        let is_promiscuous = || ip("-d link show far").contains("promiscuity 1");
        let options = ReceiverOptions { promiscuous: true, ..ReceiverOptions::default() };
        let receiver = Receiver::open(far, &options).unwrap();
        assert!(is_promiscuous());
        drop(receiver);
        // Another test may be starting a program, which has a copy of each descriptor for a moment.
        eventually("the end", || !is_promiscuous());
        assert_eq!(index("far"), far);

        let promiscuity = Promiscuity::new(far).unwrap();
        assert!(is_promiscuous());
        drop(promiscuity);
        eventually("the end", || !is_promiscuous());
        assert!(Promiscuity::new(far + 1_000).is_err());
    });
}

#[test]
fn a_missing_privilege_is_named() {
    in_namespace("a_missing_privilege_is_named", || {
        let [near, _] = veth();
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN;
        set_capabilities(None, sets).unwrap();
        for error in [
            Receiver::open(near, &ReceiverOptions::default()).unwrap_err(),
            Sender::open(near, &SenderOptions::default()).unwrap_err(),
        ] {
            assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
        }
        sets.effective |= CapabilitySet::NET_RAW;
        set_capabilities(None, sets).unwrap();
        let receiver = Receiver::open(near, &ReceiverOptions { promiscuous: true, ..ReceiverOptions::default() });
        let granted = receiver.unwrap().receive_buffer().unwrap();
        assert!(granted <= 16 << 20, "without CAP_NET_ADMIN the system's limit holds: {granted}");
        sender(near);
    });
}

#[test]
fn an_impossible_ring_is_an_error() {
    in_namespace("an_impossible_ring_is_an_error", || {
        let [near, _] = veth();
        for (slots, frame_length) in [(usize::MAX, 1518), (1, usize::MAX), (1 << 21, 1 << 20)] {
            let error = Receiver::open(near, &ReceiverOptions { slots, frame_length, ..ReceiverOptions::default() });
            assert!(error.unwrap_err().to_string().contains("fewer slots"));
        }
        // Slots for GSO packets.
        let options = ReceiverOptions { slots: 16, frame_length: 70_000, ..ReceiverOptions::default() };
        assert!(Receiver::open(near, &options).unwrap().slots() >= 16);
    });
}
