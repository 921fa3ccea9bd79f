//! Wildcards in names of functions.

/// Returns whether a name matches a pattern of `*` and `?`.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Position after the last star, and that of the name where it is tried next.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, n));
            }
            Some(&letter) if letter == b'?' || Some(&letter) == name.get(n) => {
                p += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((after, at)) => {
                    *at += 1;
                    (p, n) = (*after, *at);
                }
                None => return false,
            },
        }
    }
    pattern
        .get(p..)
        .is_none_or(|rest| rest.iter().all(|&letter| letter == b'*'))
}

/// Returns whether a name has wildcards.
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::matches;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("vfs_*", "vfs_read", true),
            ("vfs_*", "xvfs_read", false),
            ("*", "", true),
            ("*_read*", "vfs_readv", true),
            ("vfs_rea?", "vfs_read", true),
            ("vfs_rea?", "vfs_rea", false),
            ("a*b*c", "abbbcbc", true),
            ("a*b*c", "abbbcb", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_with_stars_put_into_it_matches(name in "[a-c_]{0,12}", at in prop::collection::vec(0..=12_usize, 0..4)) {
            let mut pattern = name.clone();
            for at in at {
                pattern.insert(at.min(pattern.len()), '*');
            }
            prop_assert!(matches(&pattern, &name));
            prop_assert_eq!(matches(&pattern, &format!("{name}x")), pattern.ends_with('*'));
        }
    }
}
