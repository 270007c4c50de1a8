//! Attribution of samples to apps, from the stack of the engine's thread.
//!
//! Apps of one type share their functions, so the instruction alone does not identify the app. But the breath calls
//! each app from a different place, and the return address of this call lies on the stack. Stale return addresses of
//! finished calls may lie there too. Since a thread always calls its breath from the same place, the right address is
//! always in the same slot of its stack: the slot that has one in most samples of the thread.
//!
//! If no code is assembled, or an app is called otherwise (a tick, so that the instruction is in a function of another
//! type), the first function on the stack that was made for an app's type identifies the type. The app may then be any
//! of that type.

use std::collections::{BTreeMap, HashMap};

use bellows_engine::listing::{ListedCall, Listing};
use bellows_pmu::Stack;

use super::image::{BREATH, Image};
use super::name;

/// A set of apps: the index of a list in [`Attribution::apps`].
pub type Owner = usize;

/// The tables that identify apps.
pub struct Attribution {
    /// Each list is one app, or several candidates.
    owners: Vec<Vec<String>>,
    /// The app of the call that returns to an address.
    returns: HashMap<u64, Owner>,
    /// The app that each stretch of generated code serves, by the name that the image has for it.
    stretches: HashMap<String, Owner>,
    /// The apps of each type, with the longest names first.
    types: Vec<(String, Owner)>,
    /// A cache of addresses found on stacks.
    typed: HashMap<u64, Option<Owner>>,
}

/// The evidence of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StackEvidence {
    /// Return addresses in the breath: each with its slot and the app.
    Returns(Vec<(u64, Owner)>),
    /// A function on the stack was made for these apps' type.
    Type(Owner),
    /// No app is running.
    None,
}

impl Attribution {
    /// The tables made from the listings of the breaths of all workers.
    pub fn new(listing: &Listing) -> Attribution {
        let mut attribution = Attribution {
            owners: Vec::new(),
            returns: HashMap::new(),
            stretches: HashMap::new(),
            types: Vec::new(),
            typed: HashMap::new(),
        };
        let workers = || std::iter::once(listing).chain(&listing.further);
        workers().for_each(|listing| attribution.read_code(listing));
        for piece in &listing.app_code {
            let owner = attribution.owner(vec![piece.app.clone()]);
            let labels = piece.code.iter().filter_map(|line| line.label.as_ref());
            let names = labels.map(|label| (format!("{}: {label}", piece.app), owner));
            attribution.stretches.extend(names);
        }
        let calls: Vec<&ListedCall> = workers().flat_map(|listing| &listing.calls).collect();
        attribution.read_types(&calls);
        attribution
    }

    /// The apps of an owner, in alphabetical order.
    pub fn apps(&self, owner: Owner) -> &[String] {
        &self.owners[owner]
    }

    /// The app that a stretch of generated code serves, from the name that the image has for it.
    pub fn stretch(&self, function: &str) -> Option<Owner> {
        self.stretches.get(function).copied()
    }

    /// The evidence of a thread's stack and instruction.
    pub fn ask(&mut self, image: &mut Image, instruction: u64, stack: Stack<'_>) -> StackEvidence {
        let in_breath = |(slot, word)| {
            let owner = image.is_assembled(word).then(|| self.returns.get(&word)).flatten()?;
            Some((slot, *owner))
        };
        let mut returns: Vec<(u64, Owner)> = stack.words().filter_map(in_breath).collect();
        let of_instruction = if image.is_code(instruction) { self.type_at(image, instruction) } else { None };
        if let Some(of_type) = of_instruction {
            // A tick is not called from the breath, and a stale address may lie in the slot of the breath's.
            let of_type = &self.owners[of_type];
            returns.retain(|(_, owner)| self.owners[*owner].iter().any(|app| of_type.contains(app)));
        }
        if !returns.is_empty() {
            return StackEvidence::Returns(returns);
        }
        let addresses = std::iter::once(instruction).chain(stack.words().map(|(_, word)| word.wrapping_sub(1)));
        for address in addresses {
            if image.is_code(address)
                && let Some(owner) = self.type_at(image, address)
            {
                return StackEvidence::Type(owner);
            }
        }
        StackEvidence::None
    }

    fn type_at(&mut self, image: &mut Image, address: u64) -> Option<Owner> {
        if let Some(known) = self.typed.get(&address) {
            return *known;
        }
        let location = image.locate(address);
        let function = location.and_then(|location| image.function(location));
        let owner = function.and_then(|function| self.of_type(&function.name()));
        self.typed.insert(address, owner);
        owner
    }

    /// The apps of the type for which a function was made.
    fn of_type(&self, function: &str) -> Option<Owner> {
        self.types.iter().find(|(path, _)| name::mentions(function, path)).map(|(_, owner)| *owner)
    }

    fn read_code(&mut self, listing: &Listing) {
        let mut serves = None;
        let mut is_call = false;
        for line in &listing.code {
            if is_call && let Some(owner) = serves {
                self.returns.insert(line.address, owner);
            }
            if let Some(label) = &line.label {
                serves = app_of(label, &listing.calls).map(|app| self.owner(vec![app.to_owned()]));
                self.stretches.extend(serves.map(|owner| (format!("{BREATH}: {label}"), owner)));
            }
            is_call = line.text.starts_with("call ");
        }
    }

    fn read_types(&mut self, calls: &[&ListedCall]) {
        let mut types: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for call in calls {
            let path = call.function.strip_suffix(&*call.entry).and_then(|path| path.strip_suffix("::"));
            types.entry(path.unwrap_or(&call.function)).or_default().push(call.app.clone());
        }
        let types = types.into_iter().map(|(path, apps)| (path.to_owned(), self.owner(apps)));
        let mut types: Vec<(String, Owner)> = types.collect();
        types.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        self.types = types;
    }

    fn owner(&mut self, mut apps: Vec<String>) -> Owner {
        apps.sort();
        apps.dedup();
        self.owners.iter().position(|known| *known == apps).unwrap_or_else(|| {
            self.owners.push(apps);
            self.owners.len() - 1
        })
    }
}

/// The app that a stretch of the breath with this label serves.
fn app_of<'a>(label: &str, calls: &'a [ListedCall]) -> Option<&'a str> {
    let label = label.strip_prefix("sampled ").unwrap_or(label);
    let label = label.strip_prefix("call ").unwrap_or(label);
    let is_of = |call: &&ListedCall| {
        let rest = label.strip_prefix(&*call.entry).and_then(|rest| rest.strip_prefix(' '));
        let rest = rest.and_then(|rest| rest.strip_prefix(&*call.app));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" ["))
    };
    calls.iter().filter(is_of).map(|call| &*call.app).max_by_key(|app| app.len())
}

/// The number of samples in which each slot of a thread's stack holds a return address.
#[derive(Debug, Default)]
pub struct StackSlots(HashMap<u64, u64>);

impl StackSlots {
    /// Records the evidence of this many samples.
    pub fn record(&mut self, evidence: &StackEvidence, samples: u64) {
        if let StackEvidence::Returns(returns) = evidence {
            for (slot, _) in returns {
                *self.0.entry(*slot).or_default() += samples;
            }
        }
    }

    /// The app to which a sample belongs, given all recorded samples.
    pub fn owner_of(&self, evidence: &StackEvidence) -> Option<Owner> {
        match evidence {
            StackEvidence::Returns(returns) => {
                let votes = |slot: &u64| self.0.get(slot).copied().unwrap_or_default();
                // On a tie, the slot nearest to the top wins.
                let best = returns.iter().rev().max_by_key(|(slot, _)| votes(slot));
                best.map(|(_, owner)| *owner)
            }
            StackEvidence::Type(owner) => Some(*owner),
            StackEvidence::None => None,
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use bellows_engine::listing::CodeLine;

    fn call(entry: &str, app: &str, path: &str) -> ListedCall {
        ListedCall {
            entry: entry.to_owned(),
            app: app.to_owned(),
            function: format!("{path}::{entry}"),
            tests: Vec::new(),
        }
    }

    /// Two apps of one type and a source, each called from the plain and from the sampled body.
    fn listing() -> Listing {
        let line = |address: u64, text: &str, label: Option<&str>| CodeLine {
            address,
            bytes: "90".repeat(5),
            text: text.to_owned(),
            label: label.map(str::to_owned),
        };
        let this = format!("{}::Walk", module_path!());
        let walk = format!("call {this}::push");
        let code = vec![
            line(0x1000, "call a::Source::pull", Some("pull source")),
            line(0x1005, "cmp dword [rbx], 0", Some("push one [source.output -> one.input]")),
            line(0x100a, &walk, None),
            line(0x100f, &walk, Some("push one [more] [one.output -> one [more].input]")),
            line(0x1014, "xor eax, eax", Some("tail")),
            line(0x1019, "call metered_push", Some("sampled push one [source.output -> one.input]")),
            line(0x101e, "ret", Some("sampled leave")),
        ];
        let calls =
            vec![call("pull", "source", "a::Source"), call("push", "one", &this), call("push", "one [more]", &this)];
        Listing { calls, code, ..Listing::default() }
    }

    /// An app whose function runs in this process.
    struct Walk;

    impl Walk {
        #[inline(never)]
        fn push(&self) -> u64 {
            std::hint::black_box(7)
        }
    }

    fn stack(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn setup() -> (Attribution, Image) {
        let listing = listing();
        (Attribution::new(&listing), Image::open(std::process::id(), &listing).unwrap())
    }

    #[test]
    fn the_call_that_will_be_returned_to_names_the_app() {
        let (mut attribution, mut image) = setup();
        let mut owner_of = |returns_to: u64| {
            let bytes = stack(&[1, 0xdead_beef, returns_to, 4]);
            let evidence = attribution.ask(&mut image, 8, Stack::new(0x7000, &bytes));
            let mut slots = StackSlots::default();
            slots.record(&evidence, 1);
            slots.owner_of(&evidence).map(|owner| attribution.apps(owner).join(" or "))
        };
        assert_eq!(owner_of(0x1005).as_deref(), Some("source"));
        assert_eq!(owner_of(0x100f).as_deref(), Some("one"));
        assert_eq!(owner_of(0x1014).as_deref(), Some("one [more]"));
        assert_eq!(owner_of(0x101e).as_deref(), Some("one"), "the sampled body");
        assert_eq!(owner_of(0x1019), None, "an address that no call returns to");
    }

    /// Stale addresses lie in slots that change from sample to sample, above or below the right one.
    #[test]
    fn stale_return_addresses_are_outvoted() {
        let (mut attribution, mut image) = setup();
        let stacks = [
            stack(&[0, 0x1005, 0, 0x100f, 0]),
            stack(&[0, 0, 0, 0x1014, 0]),
            stack(&[0, 0, 0x1005, 0x100f, 0]),
            stack(&[0, 0, 0, 0x100f, 0x1005]),
        ];
        let mut ask = |bytes: &Vec<u8>| attribution.ask(&mut image, 8, Stack::new(0x7000, bytes));
        let said: Vec<StackEvidence> = stacks.iter().map(&mut ask).collect();
        let mut slots = StackSlots::default();
        said.iter().for_each(|evidence| slots.record(evidence, 1));
        let judged = said.iter().map(|evidence| attribution.apps(slots.owner_of(evidence).unwrap()).join(" or "));
        assert_eq!(judged.collect::<Vec<_>>(), ["one", "one [more]", "one", "one"]);
    }

    #[test]
    fn without_a_call_from_the_breath_a_function_of_a_type_names_all_its_apps() {
        let (mut attribution, mut image) = setup();
        let within = Walk::push as *const () as u64;
        assert_eq!(Walk.push(), 7);
        for (instruction, word) in [(within, 3), (8, within + 2)] {
            let bytes = stack(&[9, word]);
            let evidence = attribution.ask(&mut image, instruction, Stack::new(0x7000, &bytes));
            let owner = StackSlots::default().owner_of(&evidence).unwrap();
            assert_eq!(attribution.apps(owner), ["one", "one [more]"]);
        }
        // A tick: the stack holds a return address of another app's call.
        let bytes = stack(&[9, 0x1005]);
        let evidence = attribution.ask(&mut image, within, Stack::new(0x7000, &bytes));
        assert_eq!(attribution.apps(StackSlots::default().owner_of(&evidence).unwrap()), ["one", "one [more]"]);
        let bytes = stack(&[1, 2, 3]);
        assert_eq!(attribution.ask(&mut image, 8, Stack::new(0x7000, &bytes)), StackEvidence::None);
    }

    #[test]
    fn stretches_of_the_breath_belong_to_the_apps_that_they_call() {
        let attribution = Attribution::new(&listing());
        let app = |function: &str| attribution.stretch(function).map(|owner| attribution.apps(owner)[0].clone());
        assert_eq!(app("breath: pull source").as_deref(), Some("source"));
        assert_eq!(app("breath: push one [more] [one.output -> one [more].input]").as_deref(), Some("one [more]"));
        assert_eq!(app("breath: sampled push one [source.output -> one.input]").as_deref(), Some("one"));
        assert_eq!(app("breath: tail"), None);
    }
}
