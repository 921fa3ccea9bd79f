//! Sources of a process: every pointer is to its own memory, and types are those of its debug information.

use std::collections::HashMap;

use super::*;

fn of_process<'t>(types: Option<&'t Types>, function: &'t str) -> Context<'t> {
    Context {
        types,
        function: Some(function),
        of_process: true,
    }
}

/// The expressions of `entry { sample(expression) }`, as text.
fn read(expression: &str, function: &str) -> String {
    let types = types();
    let text = format!("entry {{ sample({expression}) }}");
    let source = Source::parse(&text).unwrap();
    let program = source.check(&of_process(Some(&types), function));
    let program = program.unwrap_or_else(|faults| panic!("{faults}"));
    show(program.probes[0].actions[0].kind.value().unwrap())
}

#[test]
fn pointers_are_to_the_memory_of_the_process() {
    for (expression, function, expected) in [
        ("*(u32 *)arg0", "vfs_read", "Bytes(B4) of arg0".to_owned()),
        (
            "*(u32 *)uptr(arg0)",
            "vfs_read",
            "Bytes(B4) of arg0".to_owned(),
        ),
        (
            "arg7",
            "nowhere",
            "Bytes(B8) of (register(rsp) + 16)".to_owned(),
        ),
        ("arg5", "nowhere", "arg5".to_owned()),
    ] {
        assert_eq!(read(expression, function), expected, "{expression}");
    }
    // A field of a field, each read there.
    let path = read("file->f_path.dentry->d_name.name", "vfs_read");
    assert_eq!(path.matches("Bytes(").count(), 2, "{path}");
    // What a kernel has in its own memory.
    assert_eq!(read("pid", "vfs_read"), "Process of 0");
    assert_eq!(
        read("comm == \"abc\"", "vfs_read"),
        "((Comm(First) of 0 == 6513249) && (Comm(Second) of 0 == 0))"
    );
    // Text, by two numbers.
    let text = read("str(buf)", "vfs_read");
    assert!(!text.contains("Text"), "{text}");
}

#[test]
fn parameters_are_where_their_descriptions_say() {
    let arguments = vec![
        Err("is optimised away".to_owned()),
        Ok(0),
        Ok(1),
        Err("is in a register of floating-point numbers".to_owned()),
    ];
    let described = HashMap::from([
        (Box::from("vfs_read"), Ok(arguments)),
        (
            Box::from("wake_up_new_task"),
            Err("program has no debug information.".to_owned()),
        ),
    ]);
    let types = types().with_descriptions(described);
    let check = |text: &str, function: &str| {
        let source = Source::parse(text).unwrap();
        source
            .check(&of_process(Some(&types), function))
            .map_err(|faults| faults.list[0].message.clone() + " " + &faults.list[0].help)
    };
    let shown = |text: &str| {
        let program = check(text, "vfs_read").unwrap();
        show(program.probes[0].actions[0].kind.value().unwrap())
    };
    assert_eq!(shown("entry { sample(count) }"), "arg1");
    assert_eq!(shown("entry { sample(buf == 0) }"), "(arg0 == 0)");
    for (text, function, said) in [
        (
            "entry { sample(file) }",
            "vfs_read",
            "file is optimised away.",
        ),
        (
            "entry { sample(pos) }",
            "vfs_read",
            "pos is in a register of floating-point numbers.",
        ),
        (
            "entry { sample(p->pid) }",
            "wake_up_new_task",
            "program has no debug information. Arguments are `arg0`, `arg1` and so on.",
        ),
        (
            "entry { sample(((struct fil *)arg0)->f_flags) }",
            "vfs_read",
            "The process has no struct fil.",
        ),
    ] {
        let fault = check(text, function).unwrap_err();
        assert!(fault.contains(said), "{text}: {fault}");
    }
    let source = Source::parse("entry { sample(((struct file *)arg0)->f_flags) }").unwrap();
    let faults = source.check(&of_process(None, "main")).unwrap_err();
    let said = faults.to_string();
    assert!(
        said.contains("needs the debug information (DWARF)"),
        "{said}"
    );
}

#[test]
fn a_read_of_a_text_costs_once_however_often_it_is_mentioned() {
    let types = types();
    let cost = |text: &str| {
        let source = Source::parse(text).unwrap();
        let program = source.check(&of_process(Some(&types), "nowhere")).unwrap();
        program.cost(&program.probes[0])
    };
    // Two numbers of the text, and the pointer to each, however often they are mentioned.
    let read = cost("entry { @names[str((u8 *)*(u64 *)arg0)] = count() }");
    assert_eq!(read.loads, 4, "{read}");
    let others = cost("entry { sample(*(u64 *)arg0 + *(u64 *)arg1) }");
    assert_eq!(others.loads, 2, "{others}");
}
