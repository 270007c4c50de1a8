//! The machine's processors, and those that handle the interrupts of network interfaces, from `/sys` and `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bellows_placement::processors::Processor;
use bellows_sys::cpu;

/// The files of the kernel below a root: `/`, except in tests.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { root: "/".into() }
    }
}

/// The processors that handle an interface's interrupts, and the source of this knowledge; or why nothing is known.
pub type Handlers = Result<(Vec<usize>, String), String>;

impl Machine {
    fn read(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.root.join(path)).ok()?.trim().to_owned())
    }

    /// The numbers in the names of a folder's entries, after this prefix.
    fn numbers(&self, folder: &Path, prefix: &str) -> Vec<usize> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut numbers: Vec<usize> = names.filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// All processors, with their cores and memory nodes.
    pub fn processors(&self) -> Vec<Processor> {
        let nodes = self.numbers(Path::new("sys/devices/system/node"), "node");
        let nodes: Vec<(usize, Vec<usize>)> = nodes
            .into_iter()
            .filter_map(|node| Some((node, list(&self.read(&format!("sys/devices/system/node/node{node}/cpulist"))?))))
            .collect();
        let processor = |number: usize| {
            let folder = format!("sys/devices/system/cpu/cpu{number}/topology");
            let siblings = ["core_cpus_list", "thread_siblings_list"].into_iter();
            let threads = siblings.filter_map(|name| self.read(&format!("{folder}/{name}"))).map(|text| list(&text));
            // The first of a core's threads stands for the core.
            let core = threads.filter_map(|threads| threads.first().copied()).next().unwrap_or(number);
            let node = nodes.iter().find(|(_, processors)| processors.contains(&number)).map_or(0, |(node, _)| *node);
            Processor { number, core, node }
        };
        self.numbers(Path::new("sys/devices/system/cpu"), "cpu").into_iter().map(processor).collect()
    }

    /// The processors that a process may use.
    pub fn allowed(&self, pid: u32) -> Vec<usize> {
        self.allowed_in(&format!("proc/{pid}/status")).unwrap_or_default()
    }

    fn allowed_in(&self, status: &str) -> Option<Vec<usize>> {
        let status = self.read(status)?;
        Some(list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?))
    }

    /// The processor that a process's thread is pinned to; `None` if it may use several, or its name is not unique.
    pub fn pinned(&self, pid: u32, thread: &str) -> Option<usize> {
        // The kernel keeps 15 bytes of a name.
        let shown = thread.as_bytes().get(..15).unwrap_or(thread.as_bytes());
        let tasks = self.numbers(Path::new(&format!("proc/{pid}/task")), "");
        let mut named = tasks.into_iter().filter(|task| {
            self.read(&format!("proc/{pid}/task/{task}/comm")).is_some_and(|name| name.as_bytes() == shown)
        });
        let (task, None) = (named.next()?, named.next()) else { return None };
        match self.allowed_in(&format!("proc/{pid}/task/{task}/status"))?[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The processors on which the kernel receives an interface's packets: those of receive packet steering, else those
    /// of its interrupts, else those of transmit packet steering. `index` is the interface's number in the network's
    /// namespace.
    pub fn handlers(&self, interface: &str, index: Option<u64>) -> Handlers {
        let folder = format!("sys/class/net/{interface}");
        let found = self.read(&format!("{folder}/ifindex")).and_then(|number| number.parse::<u64>().ok());
        if interface.contains('/') || found.is_none() || index.is_some_and(|index| found != Some(index)) {
            return Err("the interface is in another network namespace".to_owned());
        }
        let steered = |kind: &str| self.masks(&format!("{folder}/queues"), kind);
        if let Some(processors) = some(steered("rps_cpus")) {
            return Ok((processors, "receive packet steering (rps_cpus)".to_owned()));
        }
        let interrupts = self.interrupts(&folder, interface);
        let affinity = |irq: &usize| {
            let read = |name: &str| some(list(&self.read(&format!("proc/irq/{irq}/{name}"))?));
            read("effective_affinity_list").or_else(|| read("smp_affinity_list")).unwrap_or_default()
        };
        let processors: BTreeSet<usize> = interrupts.iter().flat_map(affinity).collect();
        if let Some(processors) = some(processors.into_iter().collect()) {
            return Ok((processors, format!("the affinity of the interrupts {}", cpu::ranges(&interrupts))));
        }
        if let Some(processors) = some(steered("xps_cpus")) {
            return Ok((processors, "transmit packet steering (xps_cpus)".to_owned()));
        }
        let device = self.root.join(&folder).join("device").exists();
        let why = if device { "its device shows no interrupts" } else { "it has no device, so no interrupts" };
        Err(why.to_owned())
    }

    /// The interrupts of an interface: those of its device, or of the bus device above it, else those that bear its
    /// name. Interrupts that never came, such as those for changes of the configuration, are left out if others came.
    fn interrupts(&self, folder: &str, interface: &str) -> Vec<usize> {
        let device = fs::canonicalize(self.root.join(folder).join("device"));
        let folders = device.iter().flat_map(|device| device.ancestors().take(2));
        let of_device = folders.map(|device| self.numbers(&device.join("msi_irqs"), "")).find(|irqs| !irqs.is_empty());
        let table = self.read("proc/interrupts").unwrap_or_default();
        let lines: Vec<(usize, u64, &str)> = table.lines().filter_map(interrupt).collect();
        let is_named = |name: &str| {
            name.split_whitespace().any(|word| {
                word.strip_prefix(interface).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
            })
        };
        let irqs = of_device
            .unwrap_or_else(|| lines.iter().filter(|(_, _, name)| is_named(name)).map(|(irq, ..)| *irq).collect());
        let came = |irq: &usize| lines.iter().any(|(number, count, _)| number == irq && *count > 0);
        match irqs.iter().any(came) {
            true => irqs.into_iter().filter(came).collect(),
            false => irqs,
        }
    }

    /// The processors in the masks of all queues.
    fn masks(&self, folder: &str, kind: &str) -> Vec<usize> {
        let queues = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let masks = queues.filter_map(|queue| fs::read_to_string(queue.path().join(kind)).ok());
        let processors: BTreeSet<usize> = masks.flat_map(|text| mask(text.trim())).collect();
        processors.into_iter().collect()
    }
}

fn some(processors: Vec<usize>) -> Option<Vec<usize>> {
    (!processors.is_empty()).then_some(processors)
}

/// The number, count and name of an interrupt in `/proc/interrupts`.
fn interrupt(line: &str) -> Option<(usize, u64, &str)> {
    let (number, rest) = line.split_once(':')?;
    let number = number.trim().parse().ok()?;
    let counts = rest.split_whitespace().map_while(|word| word.parse::<u64>().ok());
    Some((number, counts.fold(0, u64::saturating_add), rest))
}

/// The processors of a list as the kernel writes it: `0-3,8`.
pub fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        (last < MAX_PROCESSORS).then_some(first..=last)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// More processors than the kernel supports.
const MAX_PROCESSORS: usize = 1 << 16;

/// The processors of a mask as the kernel writes it: `00000000,0000000f`.
fn mask(text: &str) -> Vec<usize> {
    let digits = text.chars().rev().filter_map(|digit| digit.to_digit(16)).enumerate();
    digits
        .flat_map(|(at, digit)| (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| 4 * at + bit))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder with files in place of the kernel's, removed when dropped.
    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str) -> Fake {
            let folder = std::env::temp_dir().join(format!("bellows-machine-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Fake(folder)
        }

        fn write(&self, path: &str, text: &str) -> &Fake {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        fn machine(&self) -> Machine {
            Machine { root: self.0.clone() }
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn lists_and_masks_are_read() {
        assert_eq!(list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!((list(""), list("x,0-99999999999"), list("3-1")), (vec![], vec![], vec![]));
        assert_eq!(mask("00000001,00000005"), [0, 2, 32]);
        assert_eq!(mask("0"), Vec::<usize>::new());
    }

    #[test]
    fn cores_and_memory_nodes_are_known() {
        let fake = Fake::new("topology");
        for number in 0..4 {
            let threads = format!("{}-{}\n", number / 2 * 2, number / 2 * 2 + 1);
            fake.write(&format!("sys/devices/system/cpu/cpu{number}/topology/core_cpus_list"), &threads);
        }
        fake.write("sys/devices/system/cpu/cpufreq/x", "").write("sys/devices/system/node/node0/cpulist", "0-1\n");
        fake.write("sys/devices/system/node/node1/cpulist", "2-3\n");
        let known: Vec<_> = fake.machine().processors().iter().map(|it| (it.number, it.core, it.node)).collect();
        assert_eq!(known, [(0, 0, 0), (1, 0, 0), (2, 2, 1), (3, 2, 1)]);
        assert!(!Machine::default().processors().is_empty(), "this machine has processors");
    }

    #[test]
    fn pinned_threads_are_found_by_name() {
        let fake = Fake::new("threads");
        fake.write("proc/7/status", "Name:\tbellows\nCpus_allowed_list:\t0-3\n");
        for (task, name, allowed) in [(7, "bellows", "0-3"), (8, "engine", "0-3"), (9, "worker a-long-n", "2")] {
            fake.write(&format!("proc/7/task/{task}/comm"), &format!("{name}\n"));
            fake.write(&format!("proc/7/task/{task}/status"), &format!("Cpus_allowed_list:\t{allowed}\n"));
        }
        let machine = fake.machine();
        assert_eq!((machine.allowed(7), machine.allowed(6)), (vec![0, 1, 2, 3], vec![]));
        assert_eq!(machine.pinned(7, "worker a-long-name"), Some(2));
        assert_eq!((machine.pinned(7, "engine"), machine.pinned(7, "worker b")), (None, None));
    }

    #[test]
    fn an_interface_has_the_processors_of_its_interrupts() {
        let fake = Fake::new("interrupts");
        fake.write("sys/class/net/eth0/ifindex", "2\n").write("sys/class/net/lo/ifindex", "1\n");
        // As with virtio: the interrupts are those of the bus device above.
        fake.write("sys/devices/pci/virtio0/uevent", "").write("sys/devices/pci/msi_irqs/24", "msix");
        fake.write("sys/devices/pci/msi_irqs/25", "msix").write("sys/devices/pci/msi_irqs/26", "msix");
        symlink(fake.0.join("sys/devices/pci/virtio0"), fake.0.join("sys/class/net/eth0/device")).unwrap();
        let table = "           CPU0       CPU1\n 24:  0  0  PCI-MSI  virtio0-config\n 25:  9  0  PCI-MSI  virtio0-input.0\n \
                     26:  0  7  PCI-MSI  virtio0-output.0\nNMI:  1  1  Non-maskable interrupts\n";
        fake.write("proc/interrupts", table);
        fake.write("proc/irq/24/smp_affinity_list", "3").write("proc/irq/25/effective_affinity_list", "0\n");
        fake.write("proc/irq/25/smp_affinity_list", "0-3").write("proc/irq/26/smp_affinity_list", "1\n");
        let machine = fake.machine();
        let (processors, source) = machine.handlers("eth0", Some(2)).unwrap();
        assert_eq!((processors, &*source), (vec![0, 1], "the affinity of the interrupts 25, 26"));
        assert!(machine.handlers("eth0", Some(3)).unwrap_err().contains("namespace"));
        assert!(machine.handlers("eth1", None).unwrap_err().contains("namespace"));
        assert_eq!(machine.handlers("lo", Some(1)).unwrap_err(), "it has no device, so no interrupts");

        fake.write("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000\n");
        assert_eq!(machine.handlers("eth0", None).unwrap().0, [0, 1], "no processor is no steering");
        fake.write("sys/class/net/eth0/queues/rx-1/rps_cpus", "c\n");
        assert_eq!(machine.handlers("eth0", None).unwrap().0, [2, 3]);
        fake.write("sys/class/net/lo/queues/tx-0/xps_cpus", "1\n");
        assert_eq!(machine.handlers("lo", None).unwrap().1, "transmit packet steering (xps_cpus)");
    }

    #[test]
    fn interrupts_of_old_drivers_bear_the_name_of_the_interface() {
        let fake = Fake::new("named");
        fake.write("sys/class/net/eth1/ifindex", "2\n");
        let table = " 30:  9  IO-APIC  eth1-rx-0\n 31:  9  IO-APIC  eth10-rx-0\n 32:  9  IO-APIC  eth1\n";
        fake.write("proc/interrupts", table).write("proc/irq/30/smp_affinity_list", "1");
        fake.write("proc/irq/31/smp_affinity_list", "2").write("proc/irq/32/smp_affinity_list", "3");
        assert_eq!(fake.machine().handlers("eth1", None).unwrap().0, [1, 3]);
    }
}
