use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Writes type data, as `pahole` does.
#[derive(Default)]
pub(crate) struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    known: HashMap<String, u32>,
    count: u32,
}

impl Builder {
    fn text(&mut self, text: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if text.is_empty() {
            return 0;
        }
        if let Some(at) = self.known.get(text) {
            return *at;
        }
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(text.bytes());
        self.strings.push(0);
        self.known.insert(text.to_owned(), at);
        at
    }

    fn entry(
        &mut self,
        name: &str,
        kind: u32,
        flag: bool,
        count: usize,
        value: u32,
        rest: &[u32],
    ) -> Id {
        let name = self.text(name);
        let info = (kind << 24) | (u32::from(flag) << 31) | u32::try_from(count).unwrap();
        for word in [name, info, value].iter().chain(rest) {
            self.types.extend(word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    fn integer(&mut self, name: &str, bytes: u32, signed: bool) -> Id {
        let encoding = (u32::from(signed) << 24) | (bytes * 8);
        self.entry(name, 1, false, 0, bytes, &[encoding])
    }

    fn pointer(&mut self, to: Id) -> Id {
        self.entry("", 2, false, 0, to, &[])
    }

    fn array(&mut self, of: Id, count: u32) -> Id {
        self.entry("", 3, false, 0, 0, &[of, of, count])
    }

    /// Fields with the bits where they are, and the bits that bit fields have.
    fn fields(&mut self, kind: u32, name: &str, bytes: u32, fields: &[(&str, Id, u32, u32)]) -> Id {
        let flag = fields.iter().any(|field| field.3 > 0);
        let mut rest = Vec::new();
        for &(name, of, bit, bits) in fields {
            rest.extend([
                self.text(name),
                of,
                if flag { (bits << 24) | bit } else { bit },
            ]);
        }
        self.entry(name, kind, flag, fields.len(), bytes, &rest)
    }

    fn function(&mut self, name: &str, returns: Id, parameters: &[(&str, Id)]) -> Id {
        let mut rest = Vec::new();
        for &(name, of) in parameters {
            rest.extend([self.text(name), of]);
        }
        let prototype = self.entry("", 13, false, parameters.len(), returns, &rest);
        self.entry(name, 12, false, 1, prototype, &[])
    }

    fn bytes(mut self) -> Vec<u8> {
        self.text("");
        let types = u32::try_from(self.types.len()).unwrap();
        let strings = u32::try_from(self.strings.len()).unwrap();
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types, types, strings] {
            bytes.extend(u32::to_le_bytes(word));
        }
        bytes.extend(self.types);
        bytes.extend(self.strings);
        bytes
    }
}

/// A little kernel.
pub(crate) fn bytes() -> Vec<u8> {
    let mut b = Builder::default();
    let int = b.integer("int", 4, true);
    let long = b.integer("long int", 8, true);
    let ulong = b.integer("long unsigned int", 8, false);
    let uint = b.integer("unsigned int", 4, false);
    let letter = b.integer("char", 1, true);
    let byte = b.integer("unsigned char", 1, false);
    let ssize = b.entry("ssize_t", 8, false, 0, long, &[]);
    let size = b.entry("size_t", 8, false, 0, ulong, &[]);
    let offset = b.entry("loff_t", 8, false, 0, long, &[]);
    let const_byte = b.entry("", 10, false, 0, byte, &[]);
    let name = b.pointer(const_byte);
    let qstr = b.fields(
        4,
        "qstr",
        16,
        &[("hash_len", ulong, 0, 0), ("name", name, 64, 0)],
    );
    let dentry = b.fields(
        4,
        "dentry",
        48,
        &[("d_flags", uint, 0, 0), ("d_name", qstr, 256, 0)],
    );
    let dentry_pointer = b.pointer(dentry);
    let nothing = b.pointer(0);
    let path = b.fields(
        4,
        "path",
        16,
        &[("mnt", nothing, 0, 0), ("dentry", dentry_pointer, 64, 0)],
    );
    let either = b.fields(
        5,
        "",
        8,
        &[("f_small", int, 0, 0), ("f_large", ulong, 0, 0)],
    );
    let tag = b.array(letter, 8);
    let list = b.array(int, 4);
    let file = b.fields(
        4,
        "file",
        80,
        &[
            ("f_three", uint, 0, 3),
            ("f_five", int, 3, 5),
            ("f_path", path, 64, 0),
            ("", either, 192, 0),
            ("f_tag", tag, 256, 0),
            ("f_list", list, 320, 0),
            ("f_wide", ulong, 448 + 60, 3),
            ("f_pos", offset, 512, 0),
        ],
    );
    let file_pointer = b.pointer(file);
    let letters = b.pointer(letter);
    let position = b.pointer(offset);
    let task = b.fields(
        4,
        "task_struct",
        64,
        &[
            ("prio", int, 64, 0),
            ("comm", tag, 128, 0),
            ("start_time", ulong, 256, 0),
        ],
    );
    let task_pointer = b.pointer(task);
    let busy = b.text("TASK_BUSY");
    let bad = b.text("TASK_BAD");
    let state = b.entry("state", 6, true, 2, 4, &[busy, 7, bad, u32::MAX]);
    let huge = b.text("HUGE");
    b.entry("large", 19, false, 1, 8, &[huge, 1, 0x8000_0000]);
    b.function(
        "vfs_read",
        ssize,
        &[
            ("file", file_pointer),
            ("buf", letters),
            ("count", size),
            ("pos", position),
        ],
    );
    b.function(
        "try_to_wake_up",
        int,
        &[("p", task_pointer), ("state", uint), ("wake_flags", int)],
    );
    b.function("wake_up_new_task", 0, &[("p", task_pointer)]);
    b.function("set_state", state, &[("p", task_pointer), ("to", state)]);
    b.function("twice", int, &[("a", int)]);
    b.function("twice", int, &[("b", long)]);
    b.function(
        "by_structure",
        int,
        &[
            ("path", path),
            ("flags", int),
            ("five", qstr),
            ("six", qstr),
            ("last", int),
        ],
    );
    b.function("many", 0, &[("...", 0)]);
    b.bytes()
}

pub(crate) fn types() -> Types {
    Types::read(bytes()).unwrap()
}

#[test]
fn fields_are_found_where_they_are() {
    let types = types();
    let file = types.structure("file").unwrap();
    assert_eq!(types.size(file), Some(80));
    let at = |name: &str| {
        let field = types.field(file, name).unwrap();
        (field.bit, field.bits)
    };
    assert_eq!(at("f_three"), (0, 3));
    assert_eq!(at("f_five"), (3, 5));
    assert_eq!(at("f_large"), (192, 0), "a field of a nameless union");
    assert_eq!(at("f_list"), (320, 0));
    assert_eq!(types.field(file, "f_none"), None);
    assert!(types.field_names(file).contains(&"f_small"));
    assert_eq!(
        types.written(types.field(file, "f_list").unwrap().of),
        "int[4]"
    );
    assert_eq!(types.constant("TASK_BUSY"), Some(7));
    assert_eq!(types.constant("TASK_BAD"), Some(-1));
    assert_eq!(types.constant("HUGE"), Some(0x8000_0000_0000_0001));
}

#[test]
fn functions_take_what_they_take() {
    let types = types();
    let read = types.signature("vfs_read").unwrap();
    let shown: Vec<_> = read
        .parameters
        .iter()
        .map(|known| (known.name, known.number, types.written(known.of)))
        .collect();
    assert_eq!(shown[0], ("file", Some(0), "struct file *".to_owned()));
    assert_eq!(shown[3], ("pos", Some(3), "loff_t *".to_owned()));
    assert_eq!(types.written(read.returns), "ssize_t");
    let prototype = types.prototype("vfs_read").unwrap();
    assert!(
        prototype.starts_with("ssize_t vfs_read(struct file *file, "),
        "{prototype}"
    );
    assert!(prototype.ends_with(", loff_t *pos)"), "{prototype}");
    assert_eq!(types.prototype("twice"), None);
    // The ABI: a structure of two words takes two registers if both are left, and none otherwise.
    let numbers: Vec<_> = types
        .signature("by_structure")
        .unwrap()
        .parameters
        .iter()
        .map(|known| known.number)
        .collect();
    assert_eq!(numbers, [None, Some(2), None, None, Some(5)]);
    assert!(
        types
            .signature("twice")
            .unwrap_err()
            .contains("several functions")
    );
    assert!(
        types
            .signature("vfs_read@0xffffffff81000010")
            .unwrap_err()
            .contains("several functions vfs_read, and its types do not distinguish")
    );
    assert!(
        types
            .signature("vfs_read.isra.0")
            .unwrap_err()
            .contains("The compiler changed")
    );
    assert!(
        types
            .signature("vfs_reed")
            .unwrap_err()
            .contains("do not have")
    );
}

#[test]
fn what_is_no_type_data_is_refused() {
    for (bytes, says) in [
        (vec![], "magic"),
        (b"\x7fELF and so on, 24 bytes".to_vec(), "magic"),
        (bytes()[..20].to_vec(), "header"),
        (bytes()[..200].to_vec(), "outside"),
    ] {
        let error = Types::read(bytes).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    // The first type's kind becomes one that there is not.
    let mut unknown = bytes();
    unknown[24 + 7] = 31;
    assert!(
        Types::read(unknown)
            .unwrap_err()
            .to_string()
            .contains("type 1 is of a kind")
    );
}

/// Visits all types that a source could name.
/// Reads every structure, and every `step`th function.
fn explore(types: &Types, step: usize) -> usize {
    let mut seen = 0;
    for (name, &id) in types.structs.iter().chain(&types.unions) {
        seen += usize::from(types.size(id).is_some());
        for field in types.field_names(id) {
            let found = types.field(id, field);
            seen += found.map_or(0, |found| types.written(found.of).len());
            seen += found
                .and_then(|found| types.size(found.of))
                .map_or(0, |_| 1);
        }
        assert!(!name.is_empty());
    }
    for name in types.functions.keys().step_by(step) {
        if let Ok(signature) = types.signature(name) {
            seen += types.written(signature.returns).len();
            for parameter in &signature.parameters {
                seen += types.written(parameter.of).len();
            }
        }
        for of in types.passed(name).into_iter().flatten() {
            for offset in 0..100 {
                seen += usize::from(types.accessed(of, offset, 8).is_some());
                seen += usize::from(types.begins(of, offset).is_some());
            }
        }
    }
    seen
}

#[test]
fn places_have_the_names_of_their_fields() {
    let types = Types::read(bytes()).unwrap();
    let [Some(file), None, None, None, None, None] = types.passed("vfs_read") else {
        panic!("{:?}", types.passed("vfs_read"));
    };
    let said = |of, offset, bytes| types.accessed(of, offset, bytes).map(|one| one.text);
    let text = |of, offset, bytes| said(of, offset, bytes).unwrap_or_default();
    let dentry = types.accessed(file, 16, 8).unwrap();
    assert_eq!(dentry.text, "file->f_path.dentry");
    let dentry = dentry.leads.unwrap();
    assert_eq!(text(dentry, 40, 8), "dentry->d_name.name");
    assert_eq!(text(dentry, 32, 4), "part of dentry->d_name.hash_len");
    assert_eq!(text(file, 24, 8), "file->f_large");
    assert_eq!(text(file, 24, 4), "file->f_small");
    assert_eq!(
        text(file, 25, 1),
        "part of file->f_small or part of file->f_large"
    );
    assert_eq!(text(file, 34, 1), "file->f_tag[2]");
    assert_eq!(text(file, 44, 4), "file->f_list[1]");
    // Bit fields, two fields at once, past the end, and a type that is no structure.
    assert_eq!(said(file, 0, 1), None);
    assert_eq!(said(file, 36, 8), None);
    assert_eq!(said(file, 76, 8), None);
    assert_eq!(said(file, u64::MAX, 8), None);
    assert!(types.accessed(file, 64, 8).unwrap().leads.is_none());
    let begins = |offset| types.begins(file, offset).map(|one| one.text);
    assert_eq!(begins(8).as_deref(), Some("file->f_path"));
    assert_eq!(begins(16).as_deref(), Some("file->f_path.dentry"));
    assert_eq!(begins(44).as_deref(), Some("file->f_list[1]"));
    assert_eq!(begins(45), None);
    assert_eq!(types.passed("twice"), [None; 6]);
    assert_eq!(types.returned("vfs_read"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn damaged_type_data_never_panics(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(types) = Types::read(bytes) {
            explore(&types, 1);
        }
    }
}

/// By hand: `GILK_BTF=file cargo test -p gilk-instruments -- --ignored kernel`.
#[test]
#[ignore = "needs a kernel's type data in the file that GILK_BTF names, or its own"]
fn a_kernels_type_data_is_read() {
    let file = std::env::var("GILK_BTF").unwrap_or_else(|_| "/sys/kernel/btf/vmlinux".to_owned());
    let bytes = std::fs::read(file).unwrap();
    let start = std::time::Instant::now();
    let types = Types::read(bytes).unwrap();
    let took = start.elapsed();
    println!("{types:?} in {took:?}, {} seen", explore(&types, 41));
    let file = types.structure("file").unwrap();
    let path = types.field(file, "f_path").unwrap();
    assert_eq!(types.written(path.of), "struct path");
    let read = types.signature("vfs_read").unwrap();
    assert_eq!(read.parameters[2].name, "count");
    assert!(types.functions.len() > 20_000);
    let source = "entry / file->f_path.dentry->d_name.name == \"passwd\" && curtask->real_parent->tgid == 1 / {
        sample(count); @v = values(file->f_flags) } return { sample(retval < 0) }";
    let context = crate::Context {
        types: Some(&types),
        function: Some("vfs_read"),
        of_process: false,
    };
    let program = crate::Source::parse(source)
        .unwrap()
        .check(&context)
        .unwrap();
    println!("{}", program.cost(&program.probes[0]));
}
