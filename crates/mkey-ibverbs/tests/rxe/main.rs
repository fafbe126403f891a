//! The device over a kernel's own: soft-RoCE, in a virtual machine (`cargo xtask vm`).
//!
//! All tests here need the device `rxe0` and are ignored without being asked for; without the
//! device they fail. They run beside each other, but for those that change the machine.

#![allow(missing_docs)]

mod control;
mod control_group;
mod data;
mod elsewhere;
mod events;
mod machine;
mod memory;
mod on_demand;
mod probes;
mod side;
mod windows;
