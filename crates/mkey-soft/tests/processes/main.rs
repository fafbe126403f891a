//! Queue pairs of different processes on one host: what they do to each other's memory, and what the
//! death of one does to the other. The test program starts itself as the other process.

#[path = "../common/mod.rs"]
mod common;

mod end;
mod killing;
mod moving;
mod network;
mod servant;

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(servant::ROLE) {
        return servant::serve();
    }
    let arguments = Arguments::from_args();
    let own_network = network::own();
    if let Err(error) = &own_network {
        eprintln!("tests by UDP are ignored, since there is no network of their own: {error}");
    }
    // A meeting place of the test's own, which the other processes inherit.
    let place = tempfile::tempdir().expect("a folder");
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("XDG_RUNTIME_DIR", place.path()) };
    let trial = |setting: end::Setting, name: &str, test: moving::Test| {
        let by_network = !setting.is_of_host();
        Trial::test(format!("{}_{name}", setting.name), move || {
            test(&setting);
            Ok(())
        })
        .with_ignored_flag(by_network && own_network.is_err())
    };
    let mut trials = Vec::new();
    for setting in end::SETTINGS {
        let all = moving::TESTS.iter().chain(killing::TESTS);
        trials.extend(all.map(|&(name, test)| trial(setting, name, test)));
    }
    for setting in [end::SHARED, end::UDP] {
        trials.extend(moving::OWN_PORT.iter().map(|&(name, test)| trial(setting, name, test)));
    }
    trials.extend(moving::ONCE.iter().map(|&(name, test)| trial(end::SHARED, name, test)));
    libtest_mimic::run(&arguments, trials).exit_code()
}
