//! That every thread gets on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longer than any step takes, also where others use the machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one thread does.
pub struct Seen {
    name: String,
    steps: AtomicU64,
    doing: Mutex<&'static str>,
}

impl Seen {
    /// A step begins.
    pub fn step(&self, doing: &'static str) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }

    fn doing(&self) -> &'static str {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All threads.
#[derive(Default)]
pub struct Watch(Vec<(Arc<Seen>, u64, Option<Instant>)>);

impl Watch {
    pub fn thread(&mut self, name: String) -> Arc<Seen> {
        let seen = Arc::new(Seen { name, steps: AtomicU64::new(0), doing: Mutex::new("starting") });
        self.0.push((seen.clone(), 0, None));
        seen
    }

    /// What everybody does, if one of them has made no step for long.
    pub fn stuck(&mut self) -> Option<String> {
        self.stuck_for(PATIENCE)
    }

    fn stuck_for(&mut self, patience: Duration) -> Option<String> {
        let now = Instant::now();
        let mut stuck = false;
        for (seen, steps, since) in &mut self.0 {
            let now_at = seen.steps.load(Ordering::Relaxed);
            if seen.doing() == "done" || now_at != *steps || since.is_none() {
                (*steps, *since) = (now_at, Some(now));
            }
            stuck |= since.is_some_and(|since| now.duration_since(since) > patience);
        }
        let all = self.0.iter().map(|(seen, steps, since)| {
            let still = since.map_or(Duration::ZERO, |since| now.duration_since(since));
            format!("{}: step {steps}, {} for {still:.1?}", seen.name, seen.doing())
        });
        stuck.then(|| format!("a thread is stuck:\n  {}", all.collect::<Vec<_>>().join("\n  ")))
    }
}

#[test]
fn who_makes_no_step_is_stuck_unless_done() {
    let mut watch = Watch::default();
    let (runs, done) = (watch.thread("one".to_owned()), watch.thread("two".to_owned()));
    done.step("done");
    runs.step("waiting for a window");
    assert_eq!(watch.stuck_for(Duration::ZERO), None, "it has made a step");
    let stuck = watch.stuck_for(Duration::ZERO).expect("it has made none");
    assert!(stuck.contains("one: step 1, waiting for a window for"), "{stuck}");
    runs.step("done");
    assert_eq!(watch.stuck_for(Duration::ZERO), None);
}
