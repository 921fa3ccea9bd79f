//! The programs of expressions.

use super::{checked, shown};
use crate::program::{BinaryOp, ExprKind};

#[test]
fn names_and_paths_become_loads_at_offsets() {
    for (expression, becomes) in [
        (
            "arg0->f_path.dentry->d_name.name",
            "u64[(u64[(arg0 + 16)] + 40)]",
        ),
        ("file->f_path.dentry->d_flags", "u32[u64[(arg0 + 16)]]"),
        ("file->f_small", "s32[(arg0 + 24)]"),
        ("file->f_three", "((u32[arg0] << 61) >> 61)"),
        ("file->f_five", "((u32[arg0] << 56) >> 59)"),
        ("file->f_wide", "((u64[(arg0 + 56)] << 1) >> 61)"),
        ("file->f_list[2]", "s32[(arg0 + 48)]"),
        ("file->f_list[count]", "s32[((arg0 + 40) + (arg2 * 4))]"),
        ("&file->f_list[1]", "(arg0 + 44)"),
        ("*pos", "s64[arg3]"),
        ("count", "arg2"),
        ("buf[3]", "s8[(arg1 + 3)]"),
        ("curtask->prio", "s32[(task + 8)]"),
        ("((struct dentry *)arg1)->d_flags", "u32[arg1]"),
        ("((u64 *)arg0)[2]", "u64[(arg0 + 16)]"),
        (
            "file->f_tag == \"ab\"",
            "((u16[(arg0 + 32)] == 25185) && (u8[(arg0 + 34)] == 0))",
        ),
        (
            "file->f_tag == \"12345678\"",
            "(u64[(arg0 + 32)] == 4050765991979987505)",
        ),
        (
            "comm != \"sh\"",
            "!((comm(first) == 26739) && (comm(second) == 0))",
        ),
        ("TASK_BUSY + 1", "8"),
        (
            "reg(\"r12\") + reg(\"eax\")",
            "(register(r12) + u32(register(rax)))",
        ),
        ("2 + 3 * 4 - (1 << 3)", "6"),
        ("-8 >> 1", "-4"),
        ("(u8)300", "44"),
        ("arg2 > 1 ? cpu : 0 && arg2", "((arg2 > 1) ? cpu : 0)"),
    ] {
        assert_eq!(
            shown("hit", expression, "vfs_read"),
            becomes,
            "{expression}"
        );
    }
    assert_eq!(
        shown("hit", "*(u16 *)((u64)arg0 + 6)", "vfs_read"),
        "u16[(arg0 + 6)]"
    );
    assert_eq!(shown("return", "retval", "vfs_read"), "returned");
    assert_eq!(
        shown("return", "retval < 0", "try_to_wake_up"),
        "(s32(returned) < 0)"
    );
    assert_eq!(shown("hit", "state", "try_to_wake_up"), "u32(arg1)");
    assert_eq!(shown("hit", "flags", "by_structure"), "s32(arg2)");
    assert_eq!(shown("entry:vfs_read", "count", "nowhere"), "arg2");
}

#[test]
fn signs_are_those_of_the_operands() {
    let op = |expression: &str, function: &str| {
        let program = checked(&format!("hit {{ sample({expression}) }}"), function);
        match program.probes[0].actions[0].kind.value().unwrap().kind {
            ExprKind::Binary(op, ..) => op,
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(op("count < 5", "vfs_read"), BinaryOp::LessUnsigned);
    assert_eq!(op("wake_flags < 5", "try_to_wake_up"), BinaryOp::LessSigned);
    assert_eq!(
        op("state < wake_flags", "try_to_wake_up"),
        BinaryOp::LessSigned
    );
    assert_eq!(op("*pos / 2", "vfs_read"), BinaryOp::DivideSigned);
    assert_eq!(op("*pos / count", "vfs_read"), BinaryOp::DivideUnsigned);
    assert_eq!(op("*pos >> count", "vfs_read"), BinaryOp::ShiftRightSigned);
    assert_eq!(
        op("(s64)count >= -1", "vfs_read"),
        BinaryOp::GreaterOrEqualSigned
    );
}
