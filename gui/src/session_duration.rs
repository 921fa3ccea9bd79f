//! Change of a session's duration, which moves the times of its instruments.

use crate::edited::EditedSession;

/// Returns the reason why a session cannot get this duration: a time of an instrument or of the
/// program would be after its end. Splashes at the end move with it.
pub(crate) fn too_short(session: &EditedSession, duration: f64) -> Option<String> {
    let splashes = session
        .all_placements()
        .filter(|one| one.splash != session.duration);
    let last = splashes.map(|one| one.splash).fold(0.0, f64::max);
    if last > duration {
        return Some(format!(
            "An instrument is in place until {last} s. Change its splash first."
        ));
    }
    let launch = session
        .all_placements()
        .map(|one| one.launch)
        .fold(0.0, f64::max);
    if launch > 0.0 && launch >= duration {
        return Some(format!(
            "An instrument launches at {launch} s. Change its launch first."
        ));
    }
    let start = session
        .workload
        .as_ref()
        .map_or(0.0, |workload| workload.start);
    (start > duration).then(|| format!("The program starts at {start} s. Change its start first."))
}

/// Changes a session's duration. A splash at the end moves with the end; a later splash is moved to
/// the end.
pub fn set_duration(session: &mut EditedSession, duration: f64) {
    let before = session.duration;
    session.duration = duration;
    session.change_all_times(|launch, splash| {
        let moves = splash == before || splash > duration;
        let splash = if moves { duration } else { splash };
        (if launch < splash { launch } else { 0.0 }, splash)
    });
    if let Some(workload) = &mut session.workload {
        workload.start = workload.start.min(duration);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use gilk_engine::session::{KernelPart, Placement};
    use gilk_engine::{HookType, Session};

    /// A session whose placements have these launches and splashes.
    pub(crate) fn scheduled(times: &[(f64, f64)]) -> Session {
        let placement = |&(launch, splash): &(f64, f64)| Placement {
            function: "f".into(),
            block: 0,
            hook: HookType::Pre,
            instrument: "counter".into(),
            launch,
            splash,
        };
        Session {
            placements: times.iter().map(placement).collect(),
            ..Session::empty()
        }
    }

    #[test]
    fn a_splash_at_the_end_moves_with_the_end() {
        let mut session: EditedSession = scheduled(&[(0.0, 10.0), (1.0, 4.0), (6.0, 8.0)]).into();
        set_duration(&mut session, 20.0);
        assert_eq!(session.placements[0].splash, 20.0);
        assert_eq!(session.placements[1].splash, 4.0);
        set_duration(&mut session, 5.0);
        session.to_session().check().unwrap();
    }

    #[test]
    fn both_parts_keep_within_the_duration() {
        let mut session: EditedSession = Session {
            kernel: Some(KernelPart::of(scheduled(&[(0.0, 10.0), (1.0, 4.0)]))),
            ..scheduled(&[(0.0, 10.0)])
        }
        .into();
        assert!(too_short(&session, 3.0).is_some_and(|why| why.contains("until 4 s")));
        set_duration(&mut session, 3.0);
        session.to_session().check().unwrap();
    }
}
