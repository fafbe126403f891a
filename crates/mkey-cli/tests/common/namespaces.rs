//! Two network namespaces with a cable between them.
#![allow(dead_code)] // Each test target uses part of it.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Gone when it is dropped.
pub struct Namespaces {
    names: [String; 2],
}

/// The addresses of one of the two.
const V4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const V6: [&str; 2] = ["fd77::1", "fd77::2"];

impl Namespaces {
    /// Makes them, with frames of so many bytes.
    ///
    /// # Errors
    /// What `ip` says: it needs root.
    pub fn new(mtu: u32) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|side| format!("mkey-{}-{count}{side}", std::process::id()));
        let both = Self { names };
        let [a, b] = &both.names;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!("link add eth0 netns {a} type veth peer name eth0 netns {b}"))?;
        for (side, name) in both.names.iter().enumerate() {
            let (v4, v6) = (V4[side], V6[side]);
            ip(&format!("-n {name} address add {v4}/24 dev eth0"))?;
            ip(&format!("-n {name} address add {v6}/64 dev eth0 nodad"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set eth0 mtu {mtu} up"))?;
        }
        Ok(both)
    }

    /// The name of one.
    pub fn name(&self, side: usize) -> &str {
        &self.names[side]
    }

    /// Its address.
    pub fn address(&self, side: usize, v6: bool) -> &'static str {
        if v6 { V6[side] } else { V4[side] }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            // It may not have been made.
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

/// Runs `ip`.
pub fn ip(line: &str) -> Result<(), String> {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("ip {line}: {}", said.trim()))
}

/// The same command in a network namespace.
pub fn in_namespace(name: &str, command: &Command) -> Command {
    let mut inside = Command::new("ip");
    inside.args(["netns", "exec", name]).arg(command.get_program()).args(command.get_args());
    for (variable, value) in command.get_envs() {
        if let Some(value) = value {
            inside.env(variable, value);
        }
    }
    inside.stdin(Stdio::null());
    inside
}
