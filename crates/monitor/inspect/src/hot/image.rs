//! The code of a running process: its files, functions and bytes.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bellows_engine::listing::{CodeLine, Listing};
use object::read::elf::{ElfFile64, FileHeader};
use object::{
    Architecture, Endianness, Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationTarget, SymbolKind,
};

use super::name;

/// What begins the names of the breath's parts; the names of an app's code begin with the app.
pub const BREATH: &str = "breath";

/// A function: a named piece of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The addresses of its instructions.
    pub range: Range<u64>,
    /// Its name in the file.
    symbol: String,
}

impl Function {
    /// Its demangled name. Few are ever needed, so the name is made on request.
    pub fn name(&self) -> String {
        name::demangled(&self.symbol)
    }
}

/// Code from one file, or assembled by the engine. Addresses are those in the file, as `objdump` shows them.
#[derive(Debug, Default)]
pub struct Module {
    /// The file's name without folders.
    pub name: String,
    data: Vec<u8>,
    segments: Vec<Segment>,
    /// In ascending order.
    functions: Vec<Function>,
    /// The places where the dynamic linker stores addresses, and the addresses.
    pointers: HashMap<u64, Pointer>,
}

/// An address that the dynamic linker stores.
#[derive(Clone, Debug)]
enum Pointer {
    /// An address in the same file.
    Here(u64),
    /// An address in another file.
    Elsewhere(String),
}

/// A part of a file that is mapped as a whole.
#[derive(Debug)]
struct Segment {
    address: u64,
    offset: u64,
    length: u64,
}

/// The place of an instruction in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The module.
    pub module: usize,
    /// Its function, if known.
    pub function: Option<usize>,
    /// The address in the module.
    pub address: u64,
}

/// An executable mapping of a process: a line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    range: Range<u64>,
    offset: u64,
    inode: u64,
    path: String,
}

/// The code of a process.
pub struct Image {
    process: u32,
    mappings: Vec<Mapping>,
    /// The addresses of the code that the engine has assembled for each worker, and of the code that apps have generated,
    /// which are the first modules.
    assembled: Vec<Range<u64>>,
    modules: Vec<Module>,
    /// The module of each file.
    loaded: HashMap<String, usize>,
}

impl Image {
    /// The code of a process with this listing of its breath.
    ///
    /// # Errors
    /// A sentence that says what cannot be read, or that this program cannot read code for that processor.
    pub fn open(process: u32, listing: &Listing) -> Result<Image, String> {
        let maps = format!("/proc/{process}/maps");
        let maps = fs::read_to_string(&maps).map_err(|error| format!("{maps} cannot be read: {error}"))?;
        let program = format!("/proc/{process}/exe");
        let data = fs::read(&program).map_err(|error| format!("{program} cannot be read: {error}"))?;
        check(&data)?;
        let breaths = std::iter::once(listing).chain(&listing.further);
        let breaths = breaths.map(|listing| assembled(BREATH, &listing.code));
        let of_apps = listing.app_code.iter().map(|piece| assembled(&piece.app, &piece.code));
        let modules: Vec<Module> = breaths.chain(of_apps).collect();
        let range =
            |module: &Module| module.segments.first().map_or(0..0, |part| part.address..part.address + part.length);
        let assembled = modules.iter().map(range).collect();
        let mut image = Image { process, mappings: mappings(&maps), assembled, modules, loaded: HashMap::new() };
        let path = fs::read_link(&program).map(|path| path.display().to_string()).unwrap_or_default();
        let inode = fs::metadata(&program).map_or(u64::MAX, |metadata| metadata.ino());
        let is_program = |mapping: &&Mapping| mapping.inode == inode || mapping.path == path;
        if let Some(mapping) = image.mappings.iter().find(is_program) {
            image.loaded.insert(mapping.path.clone(), image.modules.len());
            image.modules.push(Module::read(&mapping.path, data));
        }
        Ok(image)
    }

    /// The code at a run-time address; `None` if no code is mapped there.
    pub fn locate(&mut self, address: u64) -> Option<Location> {
        if let Some(worker) = self.assembled.iter().position(|range| range.contains(&address)) {
            return Some(self.location(worker, address));
        }
        let mapping = self.mapping(address)?;
        let offset = address - mapping.range.start + mapping.offset;
        let module = match self.loaded.get(&mapping.path) {
            Some(&module) => module,
            None => {
                let module = load(self.process, mapping);
                self.loaded.insert(mapping.path.clone(), self.modules.len());
                self.modules.push(module);
                self.modules.len() - 1
            }
        };
        let address = self.modules[module].address(offset).unwrap_or(offset);
        Some(self.location(module, address))
    }

    /// Whether generated code lies at a run-time address.
    pub fn is_assembled(&self, address: u64) -> bool {
        self.assembled.iter().any(|range| range.contains(&address))
    }

    /// Whether code is mapped at a run-time address.
    pub fn is_code(&self, address: u64) -> bool {
        self.mapping(address).is_some()
    }

    /// The module of this index.
    pub fn module(&self, module: usize) -> &Module {
        &self.modules[module]
    }

    /// The function at this place, if known.
    pub fn function(&self, location: Location) -> Option<&Function> {
        self.modules[location.module].functions.get(location.function?)
    }

    /// The demangled name of the function that a call or jump in a module leads to.
    pub fn target(&mut self, module: usize, address: u64) -> Option<String> {
        // Assembled code is at its run-time address, and leads into other modules.
        let location =
            if module < self.assembled.len() { self.locate(address)? } else { self.location(module, address) };
        let function = self.function(location).filter(|function| function.range.start == location.address);
        function.map(Function::name)
    }

    /// Like [`Image::target`], for an indirect call or jump through the address at `pointer`.
    pub fn indirect_target(&mut self, module: usize, pointer: u64) -> Option<String> {
        match self.modules[module].pointers.get(&pointer)?.clone() {
            Pointer::Here(address) => self.target(module, address),
            Pointer::Elsewhere(symbol) => Some(name::demangled(&symbol)),
        }
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.range.start <= address);
        self.mappings[..after].last().filter(|mapping| mapping.range.contains(&address))
    }

    fn location(&self, module: usize, address: u64) -> Location {
        let functions = &self.modules[module].functions;
        let after = functions.partition_point(|function| function.range.start <= address);
        let function = after.checked_sub(1).filter(|index| functions[*index].range.contains(&address));
        Location { module, function, address }
    }
}

impl Module {
    /// The contents of an ELF file; for other files, the name alone.
    fn read(path: &str, data: Vec<u8>) -> Module {
        let name = path.strip_suffix(" (deleted)").unwrap_or(path);
        let name = name.rsplit('/').next().unwrap_or(name).to_owned();
        let (mut segments, mut functions, mut pointers) = (Vec::new(), Vec::new(), HashMap::new());
        if let Ok(file) = ElfFile64::<Endianness>::parse(&*data) {
            segments.extend(file.segments().map(|segment| {
                let (offset, length) = segment.file_range();
                Segment { address: segment.address(), offset, length }
            }));
            functions = functions_of(&file);
            pointers = pointers_of(&file);
        }
        Module { name, data, segments, functions, pointers }
    }

    /// The address of an offset of the file.
    fn address(&self, offset: u64) -> Option<u64> {
        let within = |part: &&Segment| offset.checked_sub(part.offset).is_some_and(|behind| behind < part.length);
        self.segments.iter().find(within).and_then(|part| part.address.checked_add(offset - part.offset))
    }

    /// The bytes at these addresses; `None` if the file does not contain all of them.
    pub fn bytes(&self, range: &Range<u64>) -> Option<&[u8]> {
        let within = |part: &&Segment| {
            let end = part.address.checked_add(part.length);
            part.address <= range.start && end.is_some_and(|end| range.end <= end)
        };
        let part = self.segments.iter().find(within)?;
        let start = usize::try_from(part.offset.checked_add(range.start - part.address)?).ok()?;
        self.data.get(start..start.checked_add(usize::try_from(range.end.checked_sub(range.start)?).ok()?)?)
    }
}

/// Rejects code for other processors.
fn check(program: &[u8]) -> Result<(), String> {
    let file = ElfFile64::<Endianness>::parse(program);
    let file = file.map_err(|error| format!("its program cannot be read as a 64-bit ELF file: {error}"))?;
    match file.architecture() {
        Architecture::X86_64 => Ok(()),
        other => Err(format!("its program is for {other:?} processors; only code for x86-64 can be disassembled")),
    }
}

fn functions_of<'a, E: FileHeader>(file: &'a object::read::elf::ElfFile<'a, E>) -> Vec<Function> {
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let code =
        symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0);
    let mut functions: Vec<Function> = code
        .filter_map(|symbol| {
            let end = symbol.address().checked_add(symbol.size())?;
            Some(Function { range: symbol.address()..end, symbol: symbol.name().ok()?.to_owned() })
        })
        .collect();
    functions.sort_by_key(|function| (function.range.start, function.range.end));
    functions.dedup_by_key(|function| function.range.start);
    functions
}

fn pointers_of<'a, E: FileHeader>(file: &'a object::read::elf::ElfFile<'a, E>) -> HashMap<u64, Pointer> {
    let symbols = file.dynamic_symbol_table();
    let pointer = |relocation: &object::Relocation| match relocation.target() {
        RelocationTarget::Absolute => Some(Pointer::Here(relocation.addend().cast_unsigned())),
        RelocationTarget::Symbol(index) => {
            let symbol = symbols.as_ref()?.symbol_by_index(index).ok()?;
            match symbol.is_definition() {
                true => Some(Pointer::Here(symbol.address())),
                false => Some(Pointer::Elsewhere(symbol.name().ok()?.to_owned())),
            }
        }
        _ => None,
    };
    let all = file.dynamic_relocations().into_iter().flatten();
    all.filter_map(|(address, relocation)| Some((address, pointer(&relocation)?))).collect()
}

/// Code that the engine has assembled for a worker, or an app has generated. Each stretch is a function, whose name begins
/// with `of`.
fn assembled(of: &str, code: &[CodeLine]) -> Module {
    let mut module = Module { name: "assembled".to_owned(), ..Module::default() };
    let Some(first) = code.first() else { return module };
    for line in code {
        let address = first.address + module.data.len() as u64;
        if let Some(label) = &line.label {
            module.functions.push(Function { range: address..address, symbol: format!("{of}: {label}") });
        }
        let digits = line.bytes.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
        module.data.extend(digits.map(|pair| u8::from_str_radix(pair, 16).unwrap_or_default()));
        if let Some(function) = module.functions.last_mut() {
            function.range.end = first.address + module.data.len() as u64;
        }
    }
    module.segments.push(Segment { address: first.address, offset: 0, length: module.data.len() as u64 });
    module
}

/// Reads the file of a mapping, if it is still the mapped file.
fn load(process: u32, mapping: &Mapping) -> Module {
    let path = format!("/proc/{process}/root{}", mapping.path);
    let is_same = mapping.path.starts_with('/')
        && fs::metadata(&path).is_ok_and(|metadata| metadata.is_file() && metadata.ino() == mapping.inode);
    let data = if is_same { fs::read(Path::new(&path)).unwrap_or_default() } else { Vec::new() };
    Module::read(&mapping.path, data)
}

/// The executable lines of `/proc/PID/maps`, in ascending order. Other and invalid lines are skipped.
fn mappings(maps: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = maps.lines().filter_map(mapping).collect();
    mappings.sort_by_key(|mapping| mapping.range.start);
    mappings
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let range = hexadecimal(start)?..hexadecimal(end)?;
    let access = words.next()?;
    let offset = hexadecimal(words.next()?)?;
    let inode = words.nth(1)?.parse().ok()?;
    let path = words.next().unwrap_or_default().trim();
    let path = if path.is_empty() { "[anonymous]" } else { path };
    access.contains('x').then(|| Mapping { range, offset, inode, path: path.to_owned() })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use bellows_engine::listing::CodeLine;
    use proptest::prelude::*;

    const MAPS: &str = "\
55dbd6f35000-55dbd6f36000 r-xp 00000000 00:01 72508                      /memfd:code (deleted)
55dbd6f38000-55dbd707b000 r--p 00000000 fe:00 10231901                   /opt/my files/bellows
55dbd707b000-55dbd74bc000 r-xp 00143000 fe:00 10231901                   /opt/my files/bellows
7fefb3266000-7fefb3268000 r-xp 00000000 00:00 0                          [vdso]
7fefb4000000-7fefb4001000 r-xp 00000000 00:00 0 
";

    #[test]
    fn mappings_that_can_be_run_are_found_with_their_files() {
        let mappings = mappings(MAPS);
        let paths: Vec<&str> = mappings.iter().map(|mapping| &*mapping.path).collect();
        assert_eq!(paths, ["/memfd:code (deleted)", "/opt/my files/bellows", "[vdso]", "[anonymous]"]);
        let program = &mappings[1];
        assert_eq!((program.range.start, program.offset, program.inode), (0x55db_d707_b000, 0x14_3000, 10_231_901));
    }

    /// As the engine assembles it: one stretch of an app, and one of the breath's own.
    fn listing() -> Listing {
        let line = |address: u64, bytes: &str, label: Option<&str>| CodeLine {
            address,
            bytes: bytes.to_owned(),
            text: String::new(),
            label: label.map(str::to_owned),
        };
        let code = vec![
            line(0x1000, "31c0", Some("push a [s.output -> a.input]")),
            line(0x1002, "90", None),
            line(0x1003, "c3", Some("leave")),
        ];
        Listing { code, ..Listing::default() }
    }

    fn own_image() -> Image {
        Image::open(std::process::id(), &listing()).unwrap()
    }

    #[test]
    fn a_function_of_a_running_program_is_found_by_its_address() {
        let mut image = own_image();
        let address = name::mentions as *const () as u64;
        let location = image.locate(address + 1).unwrap();
        let function = image.function(location).unwrap().clone();
        assert!(function.name().ends_with("name::mentions"), "{}", function.name());
        assert_eq!(location.address, function.range.start + 1);
        let bytes = image.module(location.module).bytes(&function.range).unwrap();
        assert!(bytes.len() as u64 == function.range.end - function.range.start && bytes.iter().any(|byte| *byte != 0));
        assert_eq!(image.target(location.module, function.range.start), Some(function.name()));
        assert_eq!(image.target(location.module, function.range.start + 1), None);
        assert!(image.is_code(address) && image.locate(8).is_none());
    }

    #[test]
    fn the_breath_is_a_module_whose_stretches_are_functions() {
        let mut image = own_image();
        let names = [0x1000, 0x1002, 0x1003].map(|address| {
            let location = image.locate(address).unwrap();
            image.function(location).unwrap().name()
        });
        assert_eq!(
            names,
            ["breath: push a [s.output -> a.input]"; 2].into_iter().chain(["breath: leave"]).collect::<Vec<_>>()[..]
        );
        assert_eq!(image.module(0).bytes(&(0x1000..0x1003)), Some(&[0x31, 0xc0, 0x90][..]));
        assert!(image.locate(0x1004).is_none());
    }

    #[test]
    fn a_program_for_another_processor_is_rejected() {
        // An ELF header for 64-bit ARM.
        let mut file = vec![0; 64];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[16..20].copy_from_slice(&[2, 0, 183, 0]);
        file[52] = 64;
        let why = check(&file).unwrap_err();
        assert!(why.contains("Aarch64") && why.contains("x86-64"), "{why}");
        assert!(check(b"#!/bin/sh\n").unwrap_err().contains("ELF"));
    }

    /// A small program: the start of the test binary.
    fn head() -> Vec<u8> {
        let mut data = vec![0; 20_000];
        std::io::Read::read_exact(&mut fs::File::open("/proc/self/exe").unwrap(), &mut data).unwrap();
        data
    }

    proptest! {
        #[test]
        fn a_damaged_file_is_read_without_a_panic(
            changes in proptest::collection::vec((0usize..2_000, any::<u8>()), 0..30), length in 0usize..20_000
        ) {
            let mut data = head();
            for (at, value) in changes {
                data[at] = value;
            }
            data.truncate(length);
            let module = Module::read("/a/b", data);
            prop_assert_eq!(&module.name, "b");
            for function in &module.functions {
                module.bytes(&function.range);
            }
            module.bytes(&(0..u64::MAX));
            module.address(u64::MAX);
        }

        #[test]
        fn any_text_is_read_as_maps(text in "([0-9a-f]{0,17}[- ]?[rwxp-]{0,5} ?[0-9 :/\n]{0,9}){0,8}") {
            for mapping in mappings(&text) {
                prop_assert!(!mapping.path.is_empty());
            }
        }
    }
}
