//! A function relocated whole: its text is left for patches wherever control comes in, and run on in
//! them until control leaves the function.
//!
//! A call keeps its original return address, so control comes into the text again behind every call;
//! it does so too at the function's entry, where other functions branch or pointers lead, and behind
//! what no patch may do. These are the **entrances**. A site stands at each of them from which something
//! that is wanted can be reached, and its patch runs on over all edges with copies, loops included, up to a
//! call, a return, a branch out of the function, or an instruction that stays. So a pass through the function
//! costs a jump for each entrance on the way, however many blocks have hooks.
//!
//! Parts of a function that stand elsewhere are left for and entered like others: what branches there from the
//! text is not known to be run by nobody.
//!
//! An entrance that takes no splice leaves what is behind it in the text, up to the next: hooks there
//! cannot be reached so.

use super::cover::{Dead, Needs, refusal};
use super::draft::Draft;
use super::hooks::{Event, Way};
use super::segments::{Number, Outline};
use crate::{Refusal, Rule};

/// Bytes of original code that the patches of one function may have, displaced or behind edges.
pub(super) const MOST_BYTES: u64 = 64 << 10;

/// How control goes through a function when a site stands at each entrance that takes one.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    /// By instruction: a patch has a copy of it.
    copied: Vec<bool>,
    /// By instruction: it is also run where it stands.
    text: Vec<bool>,
    /// Where sites stand: sorted. The function tracer's bytes may be one.
    entrances: Vec<Number>,
    /// From instruction to instruction, both in patches: sorted.
    edges: Vec<(Number, Number)>,
}

/// A search for [`Spread`].
struct Search<'s, 'a> {
    outline: &'s Outline<'a>,
    dead: &'s Dead,
    spread: Spread,
    /// Instructions to go on from, and whether that is a copy.
    to_do: Vec<(Number, bool)>,
}

impl Spread {
    /// Follows control from everywhere it comes in.
    pub(super) fn of(outline: &Outline<'_>, dead: &Dead) -> Self {
        let count = outline.len() as usize;
        let mut search = Search {
            outline,
            dead,
            spread: Self {
                copied: vec![false; count],
                text: vec![false; count],
                ..Self::default()
            },
            to_do: Vec::new(),
        };
        for at in (0..outline.len()).filter(|&at| outline.begins(at)) {
            let from_elsewhere = outline.is_entry(at)
                || outline
                    .ways(at)
                    .is_err_and(|refusal| refusal.rule != Rule::Unreached);
            if from_elsewhere {
                search.arrive(at);
            }
        }
        while let Some((at, copy)) = search.to_do.pop() {
            search.go_on(at, copy);
        }
        let mut spread = search.spread;
        spread.entrances.sort_unstable();
        spread.entrances.dedup();
        // What the text runs anyway is left to it, so that each instruction is run by one or the other.
        let text = &spread.text;
        let in_text = |at: Number| text.get(at as usize).copied().unwrap_or(true);
        spread
            .edges
            .retain(|&(from, to)| !in_text(from) && !in_text(to));
        spread.edges.sort_unstable();
        spread.edges.dedup();
        spread
    }

    /// Whether the instruction is run in patches alone.
    pub(super) fn covers(&self, at: Number) -> bool {
        let is = |marks: &[bool]| marks.get(at as usize).copied().unwrap_or(false);
        is(&self.copied) && !is(&self.text)
    }

    fn next(&self, from: Number) -> impl Iterator<Item = Number> {
        let first = self.edges.partition_point(|edge| edge.0 < from);
        let behind = self.edges.iter().skip(first);
        behind
            .take_while(move |edge| edge.0 == from)
            .map(|edge| edge.1)
    }

    fn runs_on(&self, from: Number, to: Number) -> bool {
        self.edges.binary_search(&(from, to)).is_ok()
    }

    /// From what must be copied to the sites that see to it, and how their patches go on.
    ///
    /// # Errors
    /// [`Rule::TooFar`] if the copies would take too many bytes.
    pub(super) fn complete(
        &self,
        outline: &Outline<'_>,
        dead: &Dead,
        ways: &[&Way],
        needs: &mut Needs,
    ) -> Result<(), Refusal> {
        let sources = needs.runs.iter().chain(&needs.past).map(|edge| edge.0);
        let mut targets: Vec<Number> = sources.chain(needs.copied.iter().copied()).collect();
        targets.retain(|&at| self.covers(at));
        let leading = self.leading_to(&targets);
        let led = |at: Number| leading.get(at as usize).copied().unwrap_or(false);
        let mut kept: Vec<Number> = self.entrances.clone();
        kept.retain(|&at| led(at));
        let run = self.behind(outline, &kept)?;
        needs.copied.retain(|&at| !self.covers(at));
        for &at in &kept {
            if outline.tracer == Some(at) {
                needs.tracer = true;
            } else {
                needs.copied.push(at);
            }
        }
        // Who is in the text where it leads past a site that tells arrivals is led past it there; and what
        // leads from one part of a function to another must be seen to be nobody's in the text.
        let past = needs.past.iter().copied();
        let mut anchors: Vec<Number> = past
            .filter(|&(from, to)| dead.anchored || outline.crosses(from, to))
            .map(|edge| edge.0)
            .collect();
        for way in ways {
            if let Event::On(edges) = &way.event {
                let from = edges.iter().filter(|&&(from, to)| {
                    outline
                        .number(to)
                        .is_some_and(|to| outline.crosses(from, to))
                });
                anchors.extend(from.map(|edge| edge.0));
            }
        }
        for from in anchors {
            if !dead.takes_splice(outline, from) {
                return Err(refusal(outline, from));
            }
            needs.copied.push(from);
        }
        for &(from, to) in &self.edges {
            if run.get(from as usize) == Some(&true) && outline.begins(to) {
                needs.runs.push((from, to));
                needs.rows.push((to, self.row(outline, to)));
            }
        }
        for list in [&mut needs.runs, &mut needs.rows] {
            list.sort_unstable();
            list.dedup();
        }
        needs.copied.sort_unstable();
        needs.copied.dedup();
        Ok(())
    }

    /// One past the last of the instructions that patches have in a row from there in its block.
    fn row(&self, outline: &Outline<'_>, first: Number) -> Number {
        let mut behind = first + 1;
        while behind < outline.len() && !outline.begins(behind) && self.runs_on(behind - 1, behind)
        {
            behind += 1;
        }
        behind
    }

    /// How the patches go on behind what their sites displace, if that ends among a block's instructions: the
    /// edges, and one past the last of the row behind each.
    pub(super) fn ends(
        &self,
        outline: &Outline<'_>,
        drafts: &[Draft],
    ) -> Vec<(Number, Number, Number)> {
        let behind = drafts.iter().map(|draft| draft.behind);
        let inside = behind.filter(|&behind| {
            !outline.begins(behind) && self.runs_on(behind.saturating_sub(1), behind)
        });
        inside
            .map(|behind| (behind - 1, behind, self.row(outline, behind)))
            .collect()
    }

    /// By instruction: whether control comes from there to one of `targets` in patches.
    fn leading_to(&self, targets: &[Number]) -> Vec<bool> {
        let mut back: Vec<(Number, Number)> =
            self.edges.iter().map(|&(from, to)| (to, from)).collect();
        back.sort_unstable();
        let mut leading = vec![false; self.copied.len()];
        let mut to_do = targets.to_vec();
        while let Some(at) = to_do.pop() {
            match leading.get_mut(at as usize) {
                Some(leading) if !*leading => *leading = true,
                _ => continue,
            }
            let first = back.partition_point(|edge| edge.0 < at);
            let edges = back.iter().skip(first).take_while(|edge| edge.0 == at);
            to_do.extend(edges.map(|edge| edge.1));
        }
        leading
    }

    /// By instruction: whether a patch of these sites has it.
    fn behind(&self, outline: &Outline<'_>, sites: &[Number]) -> Result<Vec<bool>, Refusal> {
        let mut any = vec![false; self.copied.len()];
        // The last site that was seen to copy it.
        let mut seen = vec![Number::MAX; self.copied.len()];
        let mut bytes = 0;
        for &site in sites {
            let mut to_do = vec![site];
            while let Some(at) = to_do.pop() {
                match seen.get_mut(at as usize) {
                    Some(seen) if *seen != site => *seen = site,
                    _ => continue,
                }
                if let Some(any) = any.get_mut(at as usize) {
                    *any = true;
                }
                bytes += outline.end(at).0 - outline.start(at).0;
                to_do.extend(self.next(at));
            }
            if bytes > MOST_BYTES {
                return Err(Refusal::new(
                    Rule::TooFar,
                    outline.start(0),
                    format!(
                        "its patches would have more than {} KiB of copies of its code",
                        MOST_BYTES >> 10
                    ),
                ));
            }
        }
        Ok(any)
    }
}

impl Search<'_, '_> {
    /// Control comes to the instruction by the text.
    fn arrive(&mut self, at: Number) {
        let outline = self.outline;
        let begins = outline
            .segment_of(at)
            .and_then(|segment| outline.segment(segment))
            .is_some_and(|segment| segment.first == at);
        let traced = outline.tracer == Some(at) && self.tracer_helps(at + 1);
        if traced || begins && self.dead.takes_splice(outline, at) {
            self.spread.entrances.push(at);
            if traced {
                self.go_on(at, true);
            } else {
                self.copy(at);
            }
        } else if let Some(text) = self.spread.text.get_mut(at as usize)
            && !*text
        {
            *text = true;
            self.to_do.push((at, false));
        }
    }

    /// Whether what is behind the tracer's site can only be run in a patch by its help.
    fn tracer_helps(&self, behind: Number) -> bool {
        let outline = self.outline;
        !outline.begins(behind)
            && !self.dead.takes_splice(outline, behind)
            && outline.can_do(behind)
    }

    /// A patch has the instruction.
    fn copy(&mut self, at: Number) {
        if let Some(copied) = self.spread.copied.get_mut(at as usize)
            && !*copied
        {
            *copied = true;
            self.to_do.push((at, true));
        }
    }

    fn go_on(&mut self, at: Number, copy: bool) {
        let outline = self.outline;
        let copy = copy && !outline.returns(at);
        for to in outline.next(at) {
            // Emulated, a static call would end the copy where its text may run on: it stays in the text.
            let stays = outline.stays(to) == Some(Rule::StaticCall);
            if copy && !stays && outline.can_do(to) && !outline.crosses(at, to) {
                self.spread.edges.push((at, to));
                self.copy(to);
            } else {
                self.arrive(to);
            }
        }
    }
}
