//! `router`: the apps of a router as one compound app.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bellows_basic::join::{self, Join};
use bellows_config::{Compound, Configure, Context, Parts, SettingError};
use bellows_engine::Ports;
use bellows_interfaces::Queues;
use bellows_interfaces::tap::{self, Tap};
use bellows_router::ReversePath;
use bellows_router::access_list::{self, AccessList, Direction};
use bellows_router::arp::{self, Arp};
use bellows_router::dispatch::{self, Dispatch, Rule};
use bellows_router::ethernet_input::{self, EthernetInput};
use bellows_router::forward::{self, Ip4Forward, Ip6Forward};
use bellows_router::fragment::{self, Fragment};
use bellows_router::icmp_error::{self, Ip4IcmpError, Ip6IcmpError};
use bellows_router::inject::{self, Inject};
use bellows_router::interface_output::{self, InterfaceOutput};
use bellows_router::ip4_input::{self, Ip4Input};
use bellows_router::ip4_options::{self, Ip4Options};
use bellows_router::ip6_input::{self, Ip6Input};
use bellows_router::kernel_routes::{self, KernelRoutes};
use bellows_router::local::{self, Ip4Local, Ip6Local};
use bellows_router::lookup::{self, Ip4LookUp, Ip6LookUp};
use bellows_router::nd::{self, Nd};
use bellows_router::punt::{self, Punt};
use bellows_router::reassemble::{self, Reassemble};
use bellows_router::reverse_path::{self, Ip4ReversePath, Ip6ReversePath};
use bellows_router::rewrite::{self, Ip4Rewrite, Ip6Rewrite};
use bellows_router::vrf::{self, InterfaceConfig, KERNEL, RoutingDomain};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A router for IPv4 and IPv6.
///
/// It forwards packets between its interfaces by static routes, finds the Ethernet addresses of neighbours by ARP and IPv6
/// neighbour discovery, answers echo requests, and tells senders by ICMP why their packets are not forwarded. IPv4 packets
/// that are too long for a link are fragmented if they may be, and fragments to the router itself are reassembled. With
/// `advertise` of an interface, IPv6 hosts on its link configure themselves. Inputs and outputs have the names
/// of ports: link each one's `output` to the router's input of its name, and the router's output to its `input`. An
/// interface is a port, or a VLAN of one.
///
/// With `host`, an interface has a TAP device on the host, and what is for the router itself and not answered by it
/// goes there: TCP, UDP, and routing protocols. What the host sends through the device leaves by the interface's port.
///
/// With `reverse_path`, sources of an interface's packets are checked; with `access_in` and `access_out`, rules tell
/// which packets may come in and go out. What the host sends is not checked.
///
/// What nearly all packets need is done in one loop, by `ip4-forward` and `ip6-forward`; what these pass on, and with
/// `fuse = false` all packets, goes through the apps of the single stages.
///
/// With `workers`, several threads forward.
///
/// With `services`, packets for the router itself leave by ports of their own, as do those of tunnels, and packets that
/// come in there are sent as the router's.
///
/// The keys are those of its routing domain, an object of type `vrf`, which other apps may name as `NAME/vrf`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Config(pub(crate) vrf::Config);

/// The apps of a router.
pub struct Router;

/// The name of the routing domain among the parts.
const VRF: &str = "vrf";

/// Adds the apps of a family that there is one of, whatever the number of workers.
fn add_family<O, E>(parts: &mut Parts, ip: &str)
where
    O: Configure<Config = local::Config>,
    E: Configure<Config = icmp_error::Config>,
{
    parts.app::<O>(format!("{ip}-local"), local::Config::of(VRF));
    parts.app::<E>(format!("{ip}-icmp-error"), icmp_error::Config::of(VRF));
    parts.app::<Reassemble>(format!("{ip}-reassemble"), reassemble::Config::default());
}

/// The apps that most packets pass, on one worker.
struct Forwarding<'a> {
    /// The worker; `None` is that of the router.
    worker: Option<&'a str>,
    /// Whether several apps send to inputs of the router's own apps, which joins collect.
    has_joins: bool,
    /// Whether the stages are apart: no loop does their work.
    are_apart: bool,
}

impl Forwarding<'_> {
    /// The name of a part, or of a port of a part that the workers share.
    fn name(&self, part: &str) -> String {
        self.worker.map_or_else(|| part.to_owned(), |worker| format!("{worker}-{part}"))
    }

    fn app<A: Configure>(&self, parts: &mut Parts, part: &str, config: A::Config) {
        let part = parts.app::<A>(self.name(part), config);
        if let Some(worker) = self.worker {
            part.on_worker(worker);
        }
        if self.are_apart {
            part.apart();
        }
    }

    /// Adds a link between two parts of this worker.
    fn link(&self, parts: &mut Parts, from: &str, to: &str) {
        parts.link(format!("{} -> {}", self.name(from), self.name(to)));
    }

    /// Adds a link to a port that the workers share, of a part whose inputs may have any name.
    fn link_to_any(&self, parts: &mut Parts, from: &str, [app, port]: [&str; 2]) {
        parts.link(format!("{} -> {app}.{}", self.name(from), self.name(port)));
    }

    /// Adds a link to an input that the workers share.
    fn link_to_one(&self, parts: &mut Parts, from: &str, [app, port]: [&str; 2]) {
        if self.has_joins {
            self.link_to_any(parts, from, [&join_of([app, port]), "own"]);
        } else {
            parts.link(format!("{from} -> {app}.{port}"));
        }
    }

    /// Adds the apps of a family. Returns the app that comes first behind the check of headers.
    fn add_family<O, L, R, C>(&self, parts: &mut Parts, ip: &str, checks: &Checks) -> String
    where
        O: Configure<Config = forward::Config>,
        L: Configure<Config = lookup::Config>,
        R: Configure<Config = rewrite::Config>,
        C: Configure<Config = reverse_path::Config>,
    {
        self.app::<L>(parts, &format!("{ip}-lookup"), lookup::Config { vrf: VRF.to_owned() });
        self.app::<R>(parts, &format!("{ip}-rewrite"), rewrite::Config { vrf: VRF.to_owned() });
        self.app::<Fragment>(parts, &format!("{ip}-fragment"), fragment::Config::of(VRF));
        let [before_lookup, before_rewrite] = checks.add::<C>(parts, self, ip);
        if checks.are_fused() {
            let name = format!("{ip}-forward");
            self.app::<O>(parts, &name, forward::Config { vrf: VRF.to_owned() });
            self.link(parts, &format!("ethernet-input.{ip}"), &format!("{name}.input"));
            self.link(parts, &format!("{name}.unusual"), &format!("{ip}-input.input"));
            self.link_to_any(parts, &format!("{name}.error"), [&format!("{ip}-icmp-error"), "forward"]);
            let neighbours = if ip == "ip4" { "arp" } else { "nd" };
            for (from, to) in
                [("to-router", [&*format!("{ip}-reassemble"), "input"]), ("resolve", [neighbours, "resolve"])]
            {
                self.link_to_any(parts, &format!("{name}.{from}"), [&join_of(to), "forward"]);
            }
        } else {
            self.link(parts, &format!("ethernet-input.{ip}"), &format!("{ip}-input.input"));
        }
        for [from, to] in [
            [format!("{ip}-input.output"), format!("{before_lookup}.input")],
            [format!("{ip}-lookup.output"), format!("{before_rewrite}.input")],
            [format!("{ip}-rewrite.fragment"), format!("{ip}-fragment.input")],
            // They go where the packet went, whose ports `access_out` has seen.
            [format!("{ip}-fragment.output"), format!("{ip}-rewrite.fragments")],
        ] {
            self.link(parts, &from, &to);
        }
        let errors = format!("{ip}-icmp-error");
        for part in ["input", "lookup", "rewrite", "fragment"] {
            self.link_to_any(parts, &format!("{ip}-{part}.error"), [&errors, part]);
        }
        self.link_to_one(parts, &format!("{ip}-lookup.local"), [&format!("{ip}-reassemble"), "input"]);
        before_lookup
    }

    /// Adds all apps of a worker. Returns the app of IPv4 that comes first behind the check of headers.
    fn add(&self, parts: &mut Parts, checks: &Checks, ports: &BTreeSet<String>, has_host: bool) -> String {
        self.app::<EthernetInput>(parts, "ethernet-input", ethernet_input::Config { vrf: VRF.to_owned() });
        self.app::<Ip4Input>(parts, "ip4-input", ip4_input::Config::default());
        self.app::<Ip6Input>(parts, "ip6-input", ip6_input::Config {});
        let before_lookup = self.add_family::<Ip4Forward, Ip4LookUp, Ip4Rewrite, Ip4ReversePath>(parts, "ip4", checks);
        self.add_family::<Ip6Forward, Ip6LookUp, Ip6Rewrite, Ip6ReversePath>(parts, "ip6", checks);
        for (from, to) in [
            ("ip4-input.options", ["ip4-options", "input"]),
            ("ethernet-input.arp", ["arp", "input"]),
            ("ip4-rewrite.resolve", ["arp", "resolve"]),
            ("ip6-rewrite.resolve", ["nd", "resolve"]),
            ("ip4-rewrite.resolve6", ["nd", "resolve4"]),
        ] {
            self.link_to_one(parts, from, to);
        }
        if has_host {
            self.link_to_any(parts, "ethernet-input.other", ["punt", "other"]);
        }
        for port in ports {
            let output = format!("{port}-output");
            let config = interface_output::Config { vrf: VRF.to_owned(), port: port.clone() };
            self.app::<InterfaceOutput>(parts, &output, config);
            for ip in ["ip4", "ip6"] {
                self.link(parts, &format!("{ip}-rewrite.{port}"), &format!("{output}.{ip}"));
                if checks.are_fused() {
                    self.link(parts, &format!("{ip}-forward.{port}"), &format!("{output}.{ip}-forward"));
                }
            }
            let name = port_of(port, self.worker);
            parts.input(&name, self.name(&format!("ethernet-input.{port}")));
            parts.output(&name, self.name(&format!("{output}.output")));
        }
        before_lookup
    }
}

/// The name of the app that joins what several apps or workers send to an input of one.
fn join_of([app, port]: [&str; 2]) -> String {
    format!("{app}-{port}-join")
}

/// The name of a port of the router for a worker.
fn port_of(port: &str, worker: Option<&str>) -> String {
    worker.map_or_else(|| port.to_owned(), |worker| format!("{port}-{worker}"))
}

/// Adds what brings the packets of several apps and workers to an input that they share.
fn add_joins(parts: &mut Parts) {
    let inputs =
        [["ip4-options", "input"], ["arp", "input"], ["arp", "resolve"], ["nd", "resolve"], ["nd", "resolve4"]];
    for input in inputs.into_iter().chain([["ip4-reassemble", "input"], ["ip6-reassemble", "input"]]) {
        let name = join_of(input);
        parts.app::<Join>(&name, join::Config {});
        parts.link(format!("{name}.output -> {}", input.join(".")));
    }
}

/// Checks the names of workers: none may make a part or a port of the name of another one.
fn check_workers(workers: &[String], ports: &BTreeSet<String>) -> Result<(), SettingError> {
    for (index, worker) in workers.iter().enumerate() {
        let refuse = |what: String, help: &str| Err(SettingError::at("workers", what, help).in_item(index));
        if workers[..index].contains(worker) {
            return refuse(format!("`{worker}` stands here twice"), "name each worker once");
        }
        let names = ports.iter().flat_map(|port| [port_of(port, Some(worker)), format!("{worker}-{port}")]);
        if let Some(name) = names.into_iter().find(|name| ports.contains(name)) {
            let what = format!("`{name}` is the name of a port, and that of a port on the worker `{worker}`");
            return refuse(what, "give the worker or the port another name");
        }
    }
    Ok(())
}

/// The checks that an interface asks for. What none asks for is left out, and costs nothing.
struct Checks {
    reverse_path: bool,
    access_in: bool,
    access_out: bool,
    /// The stages are apart in any case.
    are_apart: bool,
}

impl Checks {
    /// Whether usual packets pass all stages in one loop: nothing is between them that the loop does not do.
    fn are_fused(&self) -> bool {
        !(self.access_in || self.access_out || self.are_apart)
    }

    fn of(config: &vrf::Config) -> Checks {
        let any = |asks: fn(&InterfaceConfig) -> bool| config.interfaces.values().any(asks);
        Checks {
            reverse_path: any(|interface| interface.reverse_path != ReversePath::Off),
            access_in: any(|interface| !interface.access_in.is_empty()),
            access_out: any(|interface| !interface.access_out.is_empty()),
            are_apart: config.fuse == Some(false),
        }
    }

    /// Adds the checks of a family on a worker. Returns the apps that come first before the look-up, and before the
    /// rewriting.
    fn add<R>(&self, parts: &mut Parts, on: &Forwarding<'_>, ip: &str) -> [String; 2]
    where
        R: Configure<Config = reverse_path::Config>,
    {
        let mut before_lookup = format!("{ip}-lookup");
        let mut before_rewrite = format!("{ip}-rewrite");
        for (is_wanted, next, name, direction) in [
            (self.access_in, &mut before_lookup, "access-in", Direction::In),
            (self.access_out, &mut before_rewrite, "access-out", Direction::Out),
        ] {
            if is_wanted {
                let config = access_list::Config { vrf: Some(VRF.to_owned()), direction, rules: Vec::new() };
                let app = format!("{ip}-{name}");
                on.app::<AccessList>(parts, &app, config);
                on.link(parts, &format!("{app}.output"), &format!("{next}.input"));
                on.link_to_any(parts, &format!("{app}.error"), [&format!("{ip}-icmp-error"), name]);
                *next = app;
            }
        }
        if self.reverse_path {
            let app = format!("{ip}-reverse-path");
            on.app::<R>(parts, &app, reverse_path::Config { vrf: VRF.to_owned() });
            on.link(parts, &format!("{app}.output"), &format!("{before_lookup}.input"));
            before_lookup = app;
        }
        [before_lookup, before_rewrite]
    }
}

/// Adds what distinguishes the packets of services from others for the router. Returns the app that comes before the
/// local one.
fn add_services(parts: &mut Parts, ip: &str, services: &[Rule]) -> String {
    let rules: Vec<Rule> = services.iter().filter(|rule| rule.is_of(ip == "ip6")).cloned().collect();
    let local = format!("{ip}-local");
    if rules.is_empty() {
        return local;
    }
    let app = format!("{ip}-dispatch");
    let names: BTreeSet<String> = rules.iter().map(|rule| rule.to.clone()).collect();
    parts.app::<Dispatch>(&app, dispatch::Config { rules }).from_key("services");
    parts.link(format!("{app}.other -> {local}.input"));
    for name in names {
        let port = format!("{ip}-{name}");
        parts.input(&port, format!("{ip}-lookup.service-{name}"));
        parts.output(&port, format!("{app}.{name}"));
    }
    app
}

/// Adds the devices of the host, and the apps between them and the router.
fn add_host(parts: &mut Parts, interfaces: &[(String, InterfaceConfig)], namespace: Option<&PathBuf>) {
    if interfaces.is_empty() {
        return;
    }
    parts.app::<Punt>("punt", punt::Config::of(VRF));
    parts.app::<Inject>("inject", inject::Config { vrf: VRF.to_owned() });
    for [from, to] in [["ip4-local.punt", "punt.ip4"], ["ip6-local.punt", "punt.ip6"], ["arp.host", "punt.arp"]] {
        parts.link(format!("{from} -> {to}"));
    }
    let mut ports = BTreeSet::new();
    for (name, interface) in interfaces {
        let device = format!("{name}-host");
        parts.app::<Tap>(&device, tap_of(interface, namespace));
        parts.link(format!("punt.{name} -> {device}.input"));
        parts.link(format!("{device}.output -> inject.{name}"));
        ports.insert(interface.port.as_ref().unwrap_or(name));
    }
    for port in ports {
        parts.link(format!("inject.{port} -> {port}-output.host"));
    }
}

/// The device of an interface on the host. Frames from it are finished, because VLAN tags may be added to them.
fn tap_of(interface: &InterfaceConfig, namespace: Option<&PathBuf>) -> tap::Config {
    tap::Config {
        interface: interface.host.clone(),
        queues: Queues::default(),
        offloads: false,
        persistent: false,
        owner: None,
        group: None,
        address: interface.addresses.clone(),
        mtu: Some(u32::from(interface.mtu).min(MAX_TAP_MTU)),
        mac: Some(interface.mac.clone()),
        // Its daemons hear them, and any station can send some.
        accept_ra: false,
        up: true,
        namespace: namespace.cloned(),
    }
}

/// The greatest MTU of a TAP device, bytes.
const MAX_TAP_MTU: u32 = 65_521;

impl Compound for Router {
    const NAME: &'static str = "router";
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "frames that arrive at a port" };
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "frames that leave through a port" };
    type Config = Config;

    fn expand(Config(config): Config, _: &Context, parts: &mut Parts) -> Result<(), SettingError> {
        let interfaces = &config.interfaces;
        if interfaces.is_empty() {
            let help = "describe each in a table `interfaces.NAME`, with `mac` and `addresses`";
            return Err(SettingError::at("interfaces", "a router without interfaces forwards nothing", help));
        }
        let port =
            |(name, interface): (&String, &InterfaceConfig)| interface.port.clone().unwrap_or_else(|| name.clone());
        let ports: BTreeSet<String> = interfaces.iter().map(port).collect();
        let host: Vec<_> = config.interfaces.iter().filter(|(_, interface)| interface.host.is_some()).collect();
        let host: Vec<(String, InterfaceConfig)> =
            host.into_iter().map(|(name, it)| (name.clone(), it.clone())).collect();
        let namespace = config.host_namespace.clone();
        let checks = Checks::of(&config);
        let workers = config.workers.clone();
        check_workers(&workers, &ports)?;
        let services = config.services.clone();
        let mut config = config;
        let tables: Vec<String> = config.routes.extract_if(.., |text| text.starts_with(KERNEL)).collect();
        parts.object::<RoutingDomain>(VRF, config);
        for (place, table) in tables.iter().enumerate() {
            let name = if place == 0 { "kernel-routes".to_owned() } else { format!("kernel-routes-{}", place + 1) };
            let config = kernel_routes::Config::of(VRF, table[KERNEL.len()..].trim(), namespace.clone());
            parts.app::<KernelRoutes>(name, config).from_key("routes");
        }
        parts.app::<Arp>("arp", arp::Config::of(VRF));
        parts.app::<Nd>("nd", nd::Config::of(VRF));
        parts.app::<Ip4Options>("ip4-options", ip4_options::Config { vrf: VRF.to_owned() });
        add_family::<Ip4Local, Ip4IcmpError>(parts, "ip4");
        add_family::<Ip6Local, Ip6IcmpError>(parts, "ip6");
        let has_joins = !workers.is_empty() || checks.are_fused();
        let are_apart = checks.are_apart;
        let own = Forwarding { worker: None, has_joins, are_apart };
        let before_lookup = own.add(parts, &checks, &ports, !host.is_empty());
        parts.link(format!("ip4-options.output -> {before_lookup}.options"));
        if has_joins {
            add_joins(parts);
        }
        for worker in &workers {
            Forwarding { worker: Some(worker), has_joins, are_apart }.add(parts, &checks, &ports, !host.is_empty());
        }
        for ip in ["ip4", "ip6"] {
            let before_local = add_services(parts, ip, &services);
            for [from, to] in [
                [format!("{ip}-reassemble.output"), format!("{before_local}.input")],
                [format!("{ip}-reassemble.error"), format!("{ip}-icmp-error.reassemble")],
                [format!("{ip}-local.output"), format!("{ip}-lookup.local")],
                [format!("{ip}-local.error"), format!("{ip}-icmp-error.local")],
                [format!("{ip}-icmp-error.output"), format!("{ip}-lookup.error")],
            ] {
                parts.link(format!("{from} -> {to}"));
            }
        }
        for link in [
            "ip4-options.error -> ip4-icmp-error.options",
            "arp.error -> ip4-icmp-error.arp",
            "ip6-local.nd -> nd.input",
            "nd.error4 -> ip4-icmp-error.nd",
            "ip6-local.link -> nd.replies",
            "ip6-icmp-error.link -> nd.errors",
            "nd.error -> ip6-icmp-error.nd",
        ] {
            parts.link(link);
        }
        add_host(parts, &host, namespace.as_ref());
        for port in ports {
            for from in ["arp", "nd"] {
                parts.link(format!("{from}.{port} -> {port}-output.{from}"));
            }
        }
        Ok(())
    }
}
