//! Slots: bytes free to hold a bounce, offered at a cost.

use super::body::Body;
use super::draft::Draft;
use super::ids::{InsnId, InsnRange, PartId};
use super::tactic::{Tactic, Tactics};
use super::tactics::springboard;
use crate::Addr;

/// The owner of a slot's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    /// Padding, which is never executed.
    Padding,
    /// The site that begins here, if it displaces enough.
    Site(InsnId),
    /// A donor: some of the instructions `free`, which no site displaces; its splice and slots end before `limit`.
    Donor { free: InsnRange, limit: Addr },
}

/// Cost of a slot, most significant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SlotCost {
    /// True if the function has no hooks.
    foreign: bool,
    /// Tactics that provide slots are in order of cost.
    tactic: Tactic,
    /// Bytes that are displaced only for this slot.
    bytes: u64,
}

/// A slot that may be assigned. Its order is that of cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlotOffer {
    cost: SlotCost,
    pub(super) at: Addr,
    /// The function that has the bytes.
    pub(super) part: PartId,
    pub(super) host: Host,
}

impl SlotOffer {
    /// The tactic of a short splice with this slot.
    pub(super) fn tactic(&self, is_own_function: bool) -> Tactic {
        match self.host {
            Host::Padding => Tactic::Padding,
            Host::Site(_) => Tactic::LocalBounce,
            Host::Donor { .. } if is_own_function => Tactic::Donor,
            Host::Donor { .. } => Tactic::Springboard,
        }
    }
}

/// A function with its sites in one state of the search.
pub(super) struct Hosts<'o, 'a> {
    pub(super) body: &'o Body<'a>,
    pub(super) tactics: Tactics,
    pub(super) part: PartId,
    /// Sites by address.
    pub(super) drafts: &'o [Draft],
    /// First instructions of sites that depend on others, and may host nothing that those depend on: sorted.
    pub(super) waiting: &'o [InsnId],
    /// True if the function has no hooks.
    pub(super) foreign: bool,
}

/// Collects the slots in a window.
pub(super) struct Offers<'w, 'o, 'a> {
    pub(super) hosts: &'w Hosts<'o, 'a>,
    pub(super) low: Addr,
    pub(super) high: Addr,
    pub(super) offers: &'w mut Vec<SlotOffer>,
}

impl Offers<'_, '_, '_> {
    /// Offers a slot of a tactic, if it is in the window and the tactic is switched on.
    pub(super) fn add(&mut self, tactic: Tactic, bytes: u64, at: Addr, host: Host) {
        let is_in_window = self.low <= at && at <= self.high;
        let foreign = self.hosts.foreign;
        let switch = springboard::switch(tactic, foreign);
        if !is_in_window || !self.hosts.tactics.has(switch) {
            return;
        }
        self.offers.push(SlotOffer {
            cost: SlotCost {
                foreign,
                tactic,
                bytes,
            },
            at,
            part: self.hosts.part,
            host,
        });
    }
}
