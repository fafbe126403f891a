//! What figures were taken on: device and machine.

use super::args::Pin;
use super::measure;
use super::report::{DeviceFacts, Machine};
use mkey_core::device::Device;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

/// The device, with the pin mode that was asked for. For a real device the kernel pins.
pub fn device<D: Device + ?Sized>(device: &D, pin: Option<Pin>) -> DeviceFacts {
    let pin = pin.unwrap_or(Pin::Kernel);
    let capabilities = device.capabilities();
    DeviceFacts {
        name: device.name().to_owned(),
        driver: capabilities.driver.clone(),
        software: capabilities.software,
        pin: pin.name().to_owned(),
        pin_asked: pin.name().to_owned(),
        notes: device.notes(),
    }
}

/// The machine; `clock` is what two readings of the clock in a row cost.
pub fn machine(clock: Duration) -> Machine {
    Machine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpu: cpu_model(),
        cores: available_parallelism().map_or(1, NonZero::get),
        clock_ns: measure::nanoseconds(clock),
    }
}

fn cpu_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
