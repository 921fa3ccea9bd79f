//! Syntax highlighting of instrument sources, with errors underlined.

use egui::text::LayoutJob;
use egui::{Color32, Stroke, TextFormat};
use gilk_instruments::editor::{Edited, Marked};
use gilk_instruments::source::Class;

use crate::theme::{Tokens, code, text};

const fn color(class: Class, tokens: &Tokens) -> Color32 {
    match class {
        Class::Keyword | Class::Hook => tokens.mnemonic,
        Class::Input => tokens.register,
        Class::Function => tokens.symbol,
        Class::Type => tokens.edge_jump,
        Class::Variable => tokens.hooked,
        Class::Number => tokens.number,
        Class::Text => tokens.edge_true,
        Class::Comment => tokens.weak,
        Class::Bad => tokens.bad,
        _ => tokens.text,
    }
}

/// Lays out the text.
pub(super) fn job(source: &str, edited: Option<&Edited>, tokens: &Tokens) -> LayoutJob {
    let mut cuts: Vec<usize> = vec![0, source.len()];
    let colours = edited.map_or(&[][..], |edited| &edited.colours);
    let faults = edited.map_or(&[][..], |edited| &edited.faults);
    for (span, _) in colours {
        cuts.extend([span.start as usize, span.end as usize]);
    }
    for fault in faults {
        let (start, end) = marked(fault, source);
        cuts.extend([start, end]);
    }
    cuts.sort_unstable();
    cuts.dedup();
    let mut job = LayoutJob::default();
    for pair in cuts.windows(2) {
        let &[start, end] = pair else { continue };
        let Some(piece) = source.get(start..end) else {
            continue;
        };
        // The spans are sorted: the first that ends after `start` contains this piece, or none
        // does.
        let class = colours
            .get(colours.partition_point(|(span, _)| span.end as usize <= start))
            .filter(|(span, _)| span.start as usize <= start)
            .map(|(_, class)| *class);
        let wrong = faults.iter().any(|fault| {
            let (from, to) = marked(fault, source);
            from <= start && end <= to
        });
        let ink = class.map_or(tokens.text, |class| color(class, tokens));
        let mut format = TextFormat::simple(code(text::BODY), ink);
        if wrong {
            format.underline = Stroke::new(2.0, tokens.bad);
            format.background = tokens.bad_fill;
        }
        job.append(piece, 0.0, format);
    }
    job
}

/// Returns the range of a fault, at least one character.
fn marked(fault: &Marked, source: &str) -> (usize, usize) {
    let span = fault.fault.span;
    let start = (span.start as usize).min(source.len());
    let end = (span.end as usize).min(source.len());
    if end > start {
        return (start, end);
    }
    let next = source.get(start..).and_then(|rest| rest.chars().next());
    match next {
        Some(letter) => (start, start + letter.len_utf8()),
        None => (source.trim_end().len().saturating_sub(1), source.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::Palette;
    use gilk_instruments::{Context, Library};
    use proptest::prelude::*;

    #[test]
    fn only_errors_are_underlined() {
        let text = "instrument mine \"Mine.\";\n\nhit { sample(czu) }\n";
        let edited = Edited::look(text, &Context::default());
        let made = job(text, Some(&edited), Palette::Dark.tokens());
        let wrong: Vec<&str> = made
            .sections
            .iter()
            .filter(|section| section.format.underline.width > 0.0)
            .filter_map(|section| {
                made.text
                    .get(section.byte_range.start.0..section.byte_range.end.0)
            })
            .collect();
        assert_eq!(wrong, ["czu"]);
    }

    proptest! {
        #[test]
        fn highlighting_covers_the_whole_text(cut in 0usize..2000, letter in any::<char>(), which in 0usize..33) {
            let library = Library::builtin().unwrap();
            let sources: Vec<&str> = library.iter().filter_map(|one| one.text()).collect();
            let mut text = sources[which % sources.len()].to_owned();
            let at = (0..=cut.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            text.insert(at, letter);
            let edited = Edited::look(&text, &Context::default());
            let made = job(&text, Some(&edited), Palette::Light.tokens());
            prop_assert_eq!(made.text, text);
        }
    }
}
