//! Refused sources, and the messages.

use super::{fault, show};
use crate::{Context, Source};

#[test]
fn what_cannot_be_had_is_refused_with_the_reason() {
    for (text, says) in [
        (
            "hit { sample(rdpmc) }",
            "rdpmc: There is no value named rdpmc. The processor's counters that can be read are cycles, instructions, ref_cycles, cache_references, cache_misses, branches, branch_misses.",
        ),
        (
            "hit { printf(\"%d%%\") }",
            "\"%d%%\": Conversions of the format: 1; arguments: 0. Each `%d`, `%s` … takes one; `%%` is a percent sign.",
        ),
        (
            "hit { printf(\"%.2f\", arg0) }",
            "\"%.2f\": `%.` is no conversion. Conversions are `%d`, `%u`, `%x`, `%X`, `%o`, `%p`, `%c` and `%s`, with a width as in `%-16s` and `%08x`.",
        ),
        (
            "hit { printf(\"%d\", comm) }",
            "comm: `%d` shows a number, and this is text. Write `%s`.",
        ),
        (
            "hit { printf(\"%s %s %s %d\", comm, comm, comm, pid) }",
            "\"%s %s %s %d\": The arguments have 7 words; 6 is the most. A text has two words, a number one. Write a second `printf` for the rest.",
        ),
        (
            "hit { sample(pid); sample(comm) }",
            "comm: The samples of an instrument are lines of text, or numbers. Write the number with `printf(\"%d\", value)`, or make it an instrument of its own.",
        ),
        (
            "instrument mine \"x.\" level; hit { printf(\"x\") }",
            "\"x\": A line of text is an event. Write `event`, or no meaning, in the first statement.",
        ),
        (
            "hit { sample(conut) }",
            "conut: There is no value named conut. Did you mean count?",
        ),
        (
            "hit { sample(retval) }",
            "retval: What the function returns is not known at its blocks. Write it in a probe `return { … }`; `reg(\"ax\")` is what the register holds here.",
        ),
        (
            "return { sample(count) }",
            "count: Where the function returns it may have overwritten its arguments. Keep it: `thread @a; entry { @a = arg0 } return { sample(@a) }`.",
        ),
        (
            "hit { sample(arg6) }",
            "arg6: Arguments from arg6 on are on the stack, and where is known at the entry only. Keep it: `thread @a; entry { @a = arg6 }`.",
        ),
        (
            "entry { sample(arg4) }",
            "arg4: The function takes 4 arguments: file, buf, count, pos. Write `reg(\"r8\")` for whatever is in the register.",
        ),
        (
            "hit { sample(file->f_pat) }",
            "f_pat: struct file has no field f_pat. Did you mean f_path?",
        ),
        (
            "hit { sample(file.f_path) }",
            "f_path: This is a pointer to struct file. Write `->f_path`.",
        ),
        (
            "hit { sample(file->f_path->dentry) }",
            "dentry: This is no pointer, but a struct path. Write `.dentry`.",
        ),
        (
            "hit { sample(file->f_path.dentry.d_flags) }",
            "d_flags: This is a pointer (struct dentry *). Write `->d_flags`.",
        ),
        (
            "hit { sample(file->f_path) }",
            "file->f_path: This is a structure (struct path), not a number. Write `.field` after it, or `&` before it.",
        ),
        (
            "hit { sample(file->f_list) }",
            "file->f_list: This is an array (int[4]), not a number. Write `[0]` after it, or `&` before it.",
        ),
        (
            "hit { sample(file->f_list[4]) }",
            "4: The array has 4 elements, 0 to 3. ",
        ),
        (
            "hit { sample(count->x) }",
            "count: What this points to is not known. Cast it: `((struct name *)pointer)->field`.",
        ),
        (
            "hit { sample(*count) }",
            "count: How much is to be read here is not known. Cast it: `*(u64 *)address`, or `u32`, `u16`, `u8`.",
        ),
        (
            "hit { sample(&file->f_three) }",
            "&file->f_three: A bit field has no address. ",
        ),
        (
            "hit { sample(file + 8) }",
            "file + 8: In C this would count in units of struct file. Write `pointer[n]`, or `(u64)pointer + bytes`.",
        ),
        (
            "hit { sample((struct fiel *)arg1) }",
            "struct fiel *: The kernel has no struct fiel. Did you mean struct file?",
        ),
        (
            "hit { sample((struct file)arg1) }",
            "struct file: Numbers can be cast to numbers and pointers only. Write `(struct file *)`.",
        ),
        (
            "hit / count < 0 / { sample(1) }",
            "count < 0: One side has no sign, so this always comes out the same. Cast it: `(s64)value`, or `(s32)retval` where the function returns an int.",
        ),
        (
            "hit / comm / { sample(1) }",
            "comm: The name of a thread is not a number. It is a key, `@names[comm, tid] = count()`, or compared: `comm == \"sh\"`.",
        ),
        (
            "hit { sample(comm == \"a name that is too long\") }",
            "\"a name that is too long\": The string has 23 bytes; 15 is the most here. ",
        ),
        (
            "hit { sample(file->f_tag == \"123456789\") }",
            "\"123456789\": The text there has 8 bytes at most: this is never equal. ",
        ),
        (
            "hit { sample(count == \"x\") }",
            "count: This is not text that a string could be compared with. Compare `comm`, an array of characters, or a pointer: `(u8 *)address == \"text\"`.",
        ),
        (
            "hit { sample(reg(\"bh\")) }",
            "\"bh\": There is no register \"bh\" to be read. Did you mean `reg(\"bx\")`?",
        ),
        (
            "hit { @x = 1 }",
            "@x: @x is not declared. Write `thread @x;`, `call @x;`, `cpu @x;` or `global @x;` before the probes.",
        ),
        (
            "hit { @n[str(file)] = count() }",
            "file: This is neither text in memory nor a pointer to it. Write `str((u8 *)address)`, or the member that points to text: `str(file->f_path.dentry->d_name.name)`.",
        ),
        (
            "hit { @n = cuont() }",
            "cuont: There is no aggregate cuont. Did you mean count?",
        ),
        (
            "hit { @n[pid] = histogram(arg0) }",
            "histogram: There is no aggregate histogram. Aggregates are count, sum, min, max, avg, hist, lhist, values.",
        ),
        (
            "thread @start; hit { @strat = 1; @start = 2 }",
            "@strat: @strat is not declared. Did you mean @start?",
        ),
        (
            "thread @x; hit { sample(@x) }",
            "@x: Nothing is ever stored in @x. Store something, leave it out, or declare it `shared` if another instrument stores it.",
        ),
        (
            "call @x; pre { @x = 1 }",
            "@x: @x belongs to one call, which is known at its entry and exits only. Declare it `thread @x;`.",
        ),
        (
            "thread @x; hit { @x = hist(arg1) }",
            "@x: @x is declared as a variable. Aggregates are not declared: leave out the declaration.",
        ),
        (
            "hit { @n = count(); sample(@n) }",
            "@n: @n is added up, and not read by the program. Screens and files show it; a variable can be read: `global @name; … @name += 1`.",
        ),
        (
            "hit { @n = count(1) }",
            "count: count takes nothing. Write `@n = count()`.",
        ),
        (
            "hit { @n = lhist(count, 0, 100) }",
            "lhist: lhist takes a value, two bounds and a step. Write `@n = lhist(arg1, 0, 4096, 64)`.",
        ),
        (
            "hit { @n = lhist(count, 0, 100000, 1) }",
            "lhist: The histogram has 100000 buckets; 256 is the most. Take a larger step.",
        ),
        (
            "hit { @n = lhist(count, 0, cpu, 1) }",
            "cpu: This has to be a fixed number. ",
        ),
        (
            "hit { @n = values(count, 100) }",
            "values: A table cannot have this size. Write 2, 4, 8 and so on up to 1024.",
        ),
        (
            "hit { @n = count(); @n = sum(1) }",
            "@n: @n adds up something else elsewhere. Give one of them another name.",
        ),
        ("hit { sample(1 / 0) }", "0: This divides by zero. "),
        (
            "hit { sample(hist(1)) }",
            "hist: hist is no value. Aggregates are statements: `@name = hist(…)`.",
        ),
        (
            "hit { }",
            "hit { }: The probe does nothing. Write `@hits = count()` or `sample(value)` between its braces.",
        ),
        (
            "global @a; hit { sample(1) }",
            "@a: Nothing is ever stored in @a. Store something, leave it out, or declare it `shared` if another instrument stores it.",
        ),
    ] {
        let said = fault(text, Some("vfs_read"), true);
        assert_eq!(said, says, "{text}");
    }
    assert!(
        fault("return { sample(retval) }", Some("wake_up_new_task"), true)
            .contains("returns nothing")
    );
    assert!(fault("hit { sample(path) }", Some("by_structure"), true).contains("whole structure"));
    assert!(fault("hit { sample(a) }", Some("twice"), true).contains("several functions twice"));
}

#[test]
fn without_types_names_and_paths_say_what_they_need() {
    assert_eq!(
        fault("hit { sample(arg0->x) }", Some("vfs_read"), false),
        "arg0: What this points to is not known. Fields need the kernel's type data (BTF), which is not there; \
         write `*(u64 *)(address + offset)`."
    );
    assert_eq!(
        fault("hit { sample(file) }", Some("vfs_read"), false),
        "file: There is no value named file. Names of arguments need the kernel's type data (BTF), which is not \
         there. Arguments are `arg0`, `arg1` and so on."
    );
    assert!(
        fault("hit { sample(((struct file *)arg0)->x) }", None, false)
            .contains("which is not there")
    );
    let source =
        Source::parse("entry { sample(*(u32 *)(arg0 + 8)) } return { sample((s32)retval < 0) }")
            .unwrap();
    let program = source.check(&Context::default()).unwrap();
    assert_eq!(
        show(program.probes[0].actions[0].kind.value().unwrap()),
        "u32[(arg0 + 8)]"
    );
}

#[test]
fn a_level_is_one_number_of_the_placement() {
    let of = |declaration: &str, value: &str| {
        let text = format!(
            "instrument queued \"How many.\" level;\n{declaration} @n;\n\
             entry {{ @n = tsc; sample({value}) }}"
        );
        let checked = Source::parse(&text).unwrap().check(&Context::default());
        checked.err().map(|faults| faults.list[0].message.clone())
    };
    for (declaration, why) in [
        ("cpu", "another number on each processor"),
        ("thread", "another number in each thread"),
        ("call", "another number in each call"),
        ("shared global", "changed by other instruments, too"),
    ] {
        let said = of(declaration, "1 + @n").unwrap();
        assert_eq!(
            said,
            format!("A level is one number of all processors, and @n is {why}.")
        );
        assert_eq!(of(declaration, "tsc"), None, "{declaration}");
    }
    assert_eq!(of("global", "1 + @n"), None);
}
