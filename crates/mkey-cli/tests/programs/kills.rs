//! Clients that are killed while their server writes into their memory, by shared memory.

use crate::c::build_short;
use crate::mkey_run;
use crate::outlives;

#[test]
fn a_server_outlives_a_hundred_clients_that_are_killed() {
    let test = "a_server_outlives_a_hundred_clients_that_are_killed";
    let Some(program) = build_short(test, outlives::PROGRAM) else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let side = |_, arguments: &[&str]| {
        let mut command = mkey_run(&["--only"]);
        command.arg(program.path()).args(arguments);
        command
    };
    outlives::kills(100, &side, "127.0.0.1", port);
}
