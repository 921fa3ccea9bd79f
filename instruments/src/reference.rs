//! The reference is true: its examples are checked, formatted as they should be, and run.

use crate::source::words::WORDS;
use crate::{Context, Source, trial};

const TEXT: &str = include_str!("../README.md");

/// Returns the code blocks of the reference: the word after the three marks, and the lines in between.
fn blocks() -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = TEXT.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((kind.to_owned(), inside.join("\n") + "\n"));
        }
    }
    blocks
}

#[test]
fn the_examples_do_what_they_say() {
    let blocks = blocks();
    let mut tried = 0;
    for pair in blocks.windows(2) {
        let [(kind, text), (next, says)] = pair else {
            unreachable!()
        };
        let (kind, function) = kind.split_once(' ').unwrap_or((kind, "vfs_read"));
        match (kind, next.as_str()) {
            ("gilk", "hits") => {
                let program =
                    trial::check(text, function).unwrap_or_else(|faults| panic!("{text}{faults}"));
                trial::run(&program, says);
                assert_eq!(&Source::parse(text).unwrap().formatted(), text);
                tried += 1;
            }
            ("wrong", "says") => {
                assert_eq!(&(trial::check(text, function).unwrap_err() + "\n"), says);
                tried += 1;
            }
            ("gilk" | "wrong", other) => panic!("{other:?} follows\n{text}"),
            _ => {}
        }
    }
    assert_eq!(tried * 2, blocks.len(), "every block is one of a pair");
}

#[test]
fn no_word_is_left_out() {
    let words: Vec<&str> = TEXT
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .collect();
    for word in WORDS {
        assert!(
            words.contains(&word.word),
            "{} is not in the reference",
            word.word
        );
        assert!(
            word.says.ends_with('.') || word.says.ends_with(")."),
            "{}",
            word.says
        );
    }
}

#[test]
fn an_example_without_types_says_what_it_needs() {
    let source = Source::parse("entry { sample(file->f_three) }").unwrap();
    let faults = source.check(&Context::default()).unwrap_err();
    assert!(
        faults.to_string().contains("kernel's type data (BTF)"),
        "{faults}"
    );
}
