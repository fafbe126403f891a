//! Processes that are killed.

use crate::end::{End, RETRIES, Setting, TIMEOUT};
use crate::moving::Test;
use crate::servant::Servant;
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::status::WcStatus;
use mkey_core::work::SendOp;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, Test)] = &[("survivors_of_kills_are_unharmed", survivors)];

/// A peer is killed in the middle of a transfer, in either direction, at any instant: this process
/// is told so in the time that its settings say, and serves the next one. What the dead have left
/// behind in the meeting place is cleaned up.
fn survivors(setting: &Setting) {
    // The links differ in how they hear of it, the protocol does not.
    let kills = if setting.is_of_host() { 100 } else { 25 };
    let device = setting.device();
    let mut end = End::new(&device, QpKind::Rc);
    let mut dice = fastrand::Rng::with_seed(7);
    let agreed = TIMEOUT.1 * (u32::from(RETRIES) + 1);
    for kill in 0..kills {
        let mut servant = Servant::start(setting, "rc");
        servant.connect(&mut end);
        // The connection works.
        end.fill(0, 1000, kill as u64);
        end.succeeds(SendOp::Write(end.remote(0)), &[end.memory.sge(0, 1000)]);
        assert_eq!(servant.tell(&format!("holds 0 1000 {kill}")), "true");
        let length = [64, 4096, 300_000][kill % 3];
        let stormy = kill % 2 == 0;
        if stormy {
            assert_eq!(servant.tell(&format!("storm {length}")), "storming");
        }
        let killer = std::thread::spawn({
            let wait = Duration::from_micros(dice.u64(0..3000));
            move || {
                std::thread::sleep(wait);
                servant.kill();
                (servant, Instant::now())
            }
        });
        let sges = [end.memory.sge(0, length)];
        let failed = loop {
            let op = match dice.u8(..3) {
                0 => SendOp::Read(end.remote(0)),
                _ => SendOp::Write(end.remote(0)),
            };
            let since = Instant::now();
            let done = end.run(op, &sges);
            if done.status != WcStatus::Success {
                assert_eq!(done.status, WcStatus::RetryExcErr, "kill {kill}");
                break since;
            }
        };
        let elapsed = failed.elapsed();
        assert!(elapsed >= agreed, "kill {kill}: too soon, {elapsed:?} of {agreed:?}");
        let (_dead, at) = killer.join().unwrap();
        let late = at.elapsed();
        assert!(late < agreed + Duration::from_secs(2), "kill {kill}: {late:?} of {agreed:?}");
        assert_eq!(end.state(), QpState::Err);
        end.reset();
    }
    // The next to come sweeps.
    let _last = Servant::start(setting, "rc");
    let left = files(&std::env::var_os("XDG_RUNTIME_DIR").unwrap().into());
    let alive = left.iter().filter(|name| name.ends_with(".lock")).count();
    assert!(alive <= 2, "{left:?}");
}

fn files(folder: &std::path::PathBuf) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(files(&entry.path())),
            false => all.push(entry.file_name().to_string_lossy().into_owned()),
        }
    }
    all
}
