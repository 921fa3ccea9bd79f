//! The accesses that a person wants to see: those of addresses, and those of functions.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::str::FromStr;

use anyhow::bail;
use gilk_instruments::nearest;
use ilk_driver::accesses::{MemoryUse, RecordedExecution, parts_of_name};
use ilk_driver::script::{is_pattern, matches};

/// Addresses `ADDRESS`, or `FROM..TO` without the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    from: u64,
    /// The last one.
    to: u64,
    is_one: bool,
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = |text: &str| {
            let digits = text.trim().strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        };
        let refuse = || {
            format!(
                "{text} is no address; write 0x404010, or 0x404000..0x405000 (without the last)"
            )
        };
        let Some((from, to)) = text.split_once("..") else {
            let at = address(text).ok_or_else(refuse)?;
            return Ok(Self {
                from: at,
                to: at,
                is_one: true,
            });
        };
        let (from, to) = address(from).zip(address(to)).ok_or_else(refuse)?;
        if from >= to {
            return Err(format!(
                "{text} has no address: the first is not below the last"
            ));
        }
        Ok(Self {
            from,
            to: to - 1,
            is_one: false,
        })
    }
}

impl std::fmt::Display for Addresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_one {
            true => write!(f, "{:#x}", self.from),
            // The end that was written.
            false => write!(f, "{:#x}..{:#x}", self.from, self.to.saturating_add(1)),
        }
    }
}

impl Addresses {
    /// Returns whether an access has a byte of them.
    fn has(self, access: &MemoryUse) -> bool {
        let last = access
            .at
            .saturating_add(u64::from(access.size).saturating_sub(1));
        access.at <= self.to && last >= self.from
    }
}

/// Patterns of functions, separated by commas: `parse_*,libc.so.6:malloc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionPatterns(Vec<String>);

impl FromStr for FunctionPatterns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let patterns: Vec<String> = text.split(',').map(|one| one.trim().to_owned()).collect();
        match patterns.iter().any(String::is_empty) {
            true => Err(format!(
                "{text:?} has an empty name; write names or patterns, separated by commas: 'parse_*,libc.so.6:malloc'"
            )),
            false => Ok(Self(patterns)),
        }
    }
}

impl FunctionPatterns {
    /// Refuses functions of which a file has no block.
    pub(crate) fn check(
        &self,
        path: &Path,
        executions: &[RecordedExecution],
    ) -> anyhow::Result<()> {
        let names = executions.iter().flat_map(|one| one.names.values());
        let names: BTreeSet<_> = names.map(|name| parts_of_name(name)).collect();
        if names.is_empty() {
            bail!(
                "{} has no names of functions: its recording has no end. Leave out --function.",
                path.display()
            );
        }
        for pattern in &self.0 {
            if names.iter().any(|name| is_named(pattern, *name)) {
                continue;
            }
            let functions = names.iter().filter_map(|(function, _)| *function);
            let wanted = pattern.rsplit(':').next().unwrap_or(pattern);
            let hint = match nearest(wanted, functions) {
                Some(near) if near != wanted => format!(" Did you mean {near}?"),
                _ => String::new(),
            };
            let what = match is_pattern(pattern) {
                true => format!("matches {pattern:?}"),
                false => format!("is named {pattern:?}"),
            };
            bail!(
                "No function of {} that accesses memory {what}.{hint} `ilk accesses --all` lists them.",
                path.display()
            );
        }
        Ok(())
    }
}

/// Returns whether a pattern, with a file before it or without, matches a function of a file.
fn is_named(pattern: &str, (function, file): (Option<&str>, Option<&str>)) -> bool {
    let of_function = |pattern: &str| function.is_some_and(|name| matches(pattern, name));
    // A name of generated code may have colons of its own.
    let of_file = pattern.split_once(':').is_some_and(|(object, pattern)| {
        file.is_some_and(|file| matches(object, file)) && of_function(pattern)
    });
    of_file || of_function(pattern)
}

/// The accesses that are wanted.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    addresses: Option<Addresses>,
    functions: Option<FunctionPatterns>,
    /// Blocks of functions that are wanted, by execution.
    blocks: HashMap<(usize, u32), bool>,
}

impl Chosen {
    pub(crate) fn new(addresses: Option<Addresses>, functions: Option<FunctionPatterns>) -> Self {
        Self {
            addresses,
            functions,
            blocks: HashMap::new(),
        }
    }

    /// Returns whether an access is wanted.
    pub(crate) fn has(&mut self, access: &MemoryUse, execution: &RecordedExecution) -> bool {
        if self
            .addresses
            .is_some_and(|addresses| !addresses.has(access))
        {
            return false;
        }
        let Some(FunctionPatterns(patterns)) = &self.functions else {
            return true;
        };
        let key = (access.execution, access.block);
        *self.blocks.entry(key).or_insert_with(|| {
            let name = execution.names.get(&access.block);
            let name = name.map_or((None, None), |name| parts_of_name(name));
            patterns.iter().any(|pattern| is_named(pattern, name))
        })
    }

    /// Returns the sentence about a file without any access that is wanted.
    pub(crate) fn none(&self, path: &Path, kind: &str) -> Option<String> {
        let addresses = self.addresses.map(|addresses| format!(" at {addresses}"));
        let functions = self
            .functions
            .as_ref()
            .map(|FunctionPatterns(patterns)| format!(" by {}", patterns.join(", ")));
        if addresses.is_none() && functions.is_none() {
            return None;
        }
        Some(format!(
            "{} has no {kind}{}{}.",
            path.display(),
            functions.unwrap_or_default(),
            addresses.unwrap_or_default()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_or_refused() {
        let access = |at, size| MemoryUse {
            execution: 0,
            thread: 1,
            block: 1,
            instruction: 0x1000,
            at,
            size,
            reads: true,
            writes: false,
        };
        let one: Addresses = "0x1008".parse().unwrap();
        for (at, size, has) in [
            (0x1000, 8, false),
            (0x1000, 9, true),
            (0x1008, 1, true),
            (0x1009, 8, false),
        ] {
            assert_eq!(one.has(&access(at, size)), has, "{at:#x}, {size}");
        }
        let some: Addresses = "0x1000..0x2000".parse().unwrap();
        assert_eq!(some.to_string(), "0x1000..0x2000");
        assert!(some.has(&access(0xfff, 2)) && !some.has(&access(0xfff, 1)));
        assert!(some.has(&access(0x1fff, 8)) && !some.has(&access(0x2000, 8)));
        for wrong in [
            "",
            "404010",
            "0x",
            "main",
            "0x1..",
            "..0x1",
            "0x1..2",
            "0x1...0x2",
            "-0x1",
        ] {
            let error = wrong.parse::<Addresses>().unwrap_err();
            assert!(
                error.contains(wrong) && error.contains("0x404010"),
                "{error}"
            );
        }
        let error = "0x2..0x2".parse::<Addresses>().unwrap_err();
        assert!(error.starts_with("0x2..0x2"), "{error}");
    }

    #[test]
    fn functions_are_named_with_their_file_or_without() {
        let name = (Some("malloc"), Some("libc.so.6"));
        for (pattern, is) in [
            ("malloc", true),
            ("mal*", true),
            ("libc.so.6:malloc", true),
            ("libc*:*", true),
            ("libm*:*", false),
            ("alloc", false),
            ("libc.so.6", false),
        ] {
            assert_eq!(is_named(pattern, name), is, "{pattern}");
        }
        // A method of generated code.
        assert!(is_named("js:~work", (Some("js:~work"), Some("perf-1.map"))));
        assert!(!is_named("*", (None, Some("program"))));
        assert!("a,,b".parse::<FunctionPatterns>().is_err());
    }
}
