//! Navigation in the kernel, folding, and exports of the open graph and recording.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gilk_engine::Addr;
use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_samples::export::{Format, Progress};
use ilk_driver::client::StopFlag;

use crate::app::App;
use crate::calls::CallRun;
use crate::desk::Pane;
use crate::graph::cold;
use crate::graph::heat::Heat;
use crate::graph::svg::svg;
use crate::graph::view::ColdKey;
use crate::history::Location;
use crate::palette::CommandPalette;
use crate::state::{Exporting, NoticeKind};
use crate::theme;
use crate::worker::{call_finder, files};

impl App {
    pub(crate) fn here(&self) -> Option<Location> {
        let scene = self.state.graph.scene.as_ref()?;
        Some(Location {
            function: scene.function(),
            block: self.state.graph.selected,
        })
    }

    pub(crate) fn leave(&mut self) {
        if let Some(here) = self.here() {
            self.state.history.leave(here);
        }
    }

    pub(crate) fn go(&mut self, place: Location) {
        let shown = self
            .state
            .graph
            .scene
            .as_ref()
            .is_some_and(|scene| scene.function() == place.function);
        match place.block {
            Some(block) if shown => self.choose(block),
            None if shown => {
                self.state.graph.selected = None;
                self.state.graph.hook = None;
            }
            block => self.open(place.function, block),
        }
    }

    pub(crate) fn references(&mut self) {
        self.state.palette = Some(CommandPalette::references());
        if let (None, Some(catalogue)) = (&self.state.calls, self.state.catalogue.clone()) {
            call_finder::look(self.workers.mail(), self.targets, catalogue);
        }
    }

    /// Scrolls to the lanes of the selected block, or says why there are none in view.
    pub(crate) fn show_samples(&mut self) {
        let graph = &self.state.graph;
        let Some((scene, block)) = graph.scene.as_ref().zip(graph.selected) else {
            let words = "No block is selected; click a block of the graph.";
            self.state.notify(NoticeKind::Warning, words);
            return;
        };
        let timeline = &self.state.timeline;
        let place = format!("block {} of {}", block.0, scene.name);
        let missing = if timeline.record.is_none() {
            Some(format!(
                "There are no samples of {place}: run the session or open a recording."
            ))
        } else if !timeline.measures(&scene.name, block) {
            Some(format!(
                "The recording on the timeline has no lane of {place}: add an instrument there and run the session."
            ))
        } else if !timeline.lists(&scene.name, block) {
            Some(format!(
                "The lanes of {place} are not in view: they are filtered, empty and hidden, or in a folded group."
            ))
        } else {
            None
        };
        self.state.desk.show(Pane::Timeline);
        match missing {
            Some(words) => self.state.notify(NoticeKind::Warning, words),
            None => self.state.timeline.reveal = true,
        }
    }

    /// Folds blocks, or unfolds them if all of them are folded.
    pub(crate) fn fold(&mut self, blocks: &BTreeSet<BlockIndex>) {
        let (Some(scene), Some(metrics)) = (&self.state.graph.scene, self.state.metrics) else {
            return;
        };
        let folded = if blocks.is_subset(&scene.folded) {
            scene.folded.difference(blocks).copied().collect()
        } else {
            scene.folded.union(blocks).copied().collect()
        };
        let scene = scene.folding(folded, scene.regions.clone(), metrics);
        self.state.graph.refold(scene.into());
    }

    /// Shows the blocks of the cold region that contains a block.
    pub(crate) fn open_region(&mut self, block: BlockIndex) {
        let graph = &mut self.state.graph;
        let Some(scene) = graph.scene.clone() else {
            return;
        };
        if let Some(region) = scene.region(block) {
            graph.opened.extend(region);
            self.update_cold_regions();
            self.state.graph.select(block);
        }
    }

    /// Computes the cold regions of the open function again after a change of the function, the
    /// choice, or the recording. While a run lasts, they stay as they are.
    pub(crate) fn update_cold_regions(&mut self) {
        let (Some(scene), Some(metrics)) = (self.state.graph.scene.clone(), self.state.metrics)
        else {
            return;
        };
        let record = self.state.timeline.record.as_ref();
        let ended = record.filter(|record| record.now.is_none());
        let key = ColdKey {
            function: scene.function(),
            is_on: self.state.graph.folds_cold(),
            recording: (self.state.timeline.opened(), ended.is_some()),
            opened: self.state.graph.opened.len(),
        };
        let graph = &self.state.graph;
        if graph.cold_key.as_ref() == Some(&key) {
            return;
        }
        let mut regions = if key.is_on {
            let heat = ended.and_then(|record| Heat::of(record, &scene.name));
            let is_hit = |block| Some(heat.as_ref()?.block(block)? > 0);
            cold::regions(&scene.cfg, is_hit, &graph.opened)
        } else {
            Vec::new()
        };
        // The selected block stays visible.
        let selected = graph.selected;
        regions.retain(|region| selected.is_none_or(|block| !region.contains(&block)));
        self.state.graph.cold_key = Some(key);
        if regions != scene.regions {
            let scene = scene.folding(scene.folded.clone(), regions, metrics);
            self.state.graph.refold(scene.into());
        }
    }

    pub(crate) fn export_graph(&mut self, path: PathBuf) {
        let (Some(scene), Some(catalogue), Some(metrics)) = (
            &self.state.graph.scene,
            &self.state.catalogue,
            self.state.metrics,
        ) else {
            return;
        };
        let text = if path.extension().is_some_and(|ending| ending == "dot") {
            gilk_engine::cfg::dot::dot(catalogue.image(), &scene.cfg)
        } else {
            // For paper and documents, whatever the colours of the window are.
            let palette = theme::Palette::Light;
            let marks = (&*self.state.hooked, self.state.graph.heat.as_ref());
            svg(scene, marks, metrics, palette.tokens())
        };
        files::export(self.workers.mail(), path, text);
    }

    /// Starts an export of the recording.
    pub(crate) fn export_recording(&mut self, path: PathBuf) {
        let record = self.state.timeline.record.as_ref();
        let Some(from) = record.and_then(|record| record.path.clone()) else {
            return;
        };
        if Format::of(&path) == Some(Format::Flame)
            && let Some(picture) = self.state.call_tree.run().and_then(CallRun::difference)
        {
            // Two runs are compared: the picture shows what the pane of calls shows.
            files::export(self.workers.mail(), path, picture);
            return;
        }
        let stop = StopFlag::new();
        self.state.exporting = Some(Exporting {
            path: path.clone(),
            progress: Progress { samples: 0, of: 0 },
            stop: stop.clone(),
        });
        files::export_recording(self.workers.mail(), from, path, stop);
    }

    /// Ends the export to `path`.
    pub(crate) fn exported(&mut self, path: &Path) {
        self.state.exporting.take_if(|one| one.path == path);
    }

    /// Opens the block at an address.
    pub(crate) fn go_to(&mut self, at: Addr) {
        let Some(catalogue) = self.state.catalogue.clone() else {
            return;
        };
        if let Some(function) = catalogue.image().function_at(at) {
            let block = Cfg::of(catalogue.image(), function.id)
                .block_at(at)
                .map(|block| block.index);
            self.leave();
            self.go(Location {
                function: function.id,
                block,
            });
        }
    }

    pub(crate) fn choose(&mut self, block: BlockIndex) {
        self.open_region(block);
        let hook = self
            .state
            .graph
            .hook
            .filter(|_| self.state.graph.selected == Some(block));
        self.state.graph.select(block);
        if let Some(hook) = hook {
            self.state.draft.hook = hook;
        }
        self.state.graph.hook = Some(self.state.draft.hook);
    }

    pub(crate) fn step(&mut self, by: isize) {
        let Some(scene) = &self.state.graph.scene else {
            return;
        };
        // Blocks of cold regions are skipped.
        let visible: Vec<BlockIndex> = scene
            .boxes()
            .filter(|(.., region)| region.is_none())
            .map(|(block, ..)| block)
            .collect();
        let next = match self.state.graph.selected {
            Some(block) => {
                let at = visible.partition_point(|one| *one < block);
                let last = visible.len().saturating_sub(1);
                at.saturating_add_signed(by).min(last)
            }
            None => 0,
        };
        if let Some(&index) = visible.get(next) {
            self.choose(index);
        }
    }

    pub(crate) fn follow(&mut self, taken: bool) {
        let (Some(scene), Some(block)) = (&self.state.graph.scene, self.state.graph.selected)
        else {
            return;
        };
        if let Some(next) = scene.follow(block, taken) {
            self.leave();
            self.choose(next);
        }
    }
}
