//! RDMA devices in the kernel's files, and the network interfaces of their ports.

use crate::files::Files;

/// The folder of the devices below a root.
pub const DEVICES: &str = "sys/class/infiniband";
/// How many entries of a port's table of identifiers are asked for their interface.
const IDENTIFIERS: usize = 16;

/// The interfaces of a port: that of the first of its identifiers that has one; where none has, those of
/// the card if this is its only port. `text` reads a file below the device's folder, as in
/// `ports/1/gid_attrs/ndevs/0`, and `names` lists one.
pub fn of_port(
    port: &str,
    only: bool,
    text: impl Fn(&str) -> Option<String>,
    names: impl Fn(&str) -> Vec<String>,
) -> Vec<String> {
    let named = |at: usize| {
        // The kernel refuses to tell of an entry that is not in use.
        text(&format!("ports/{port}/gid_attrs/ndevs/{at}"))
            .filter(|net| !net.is_empty() && !net.contains('/') && net != "..")
    };
    match (0..IDENTIFIERS).find_map(named) {
        Some(net) => vec![net],
        None if only => names("device/net"),
        None => Vec::new(),
    }
}

/// The same of a port of a device, as in `mlx5_0`, by a host's files.
pub fn of_port_in(files: &Files, device: &str, port: &str, only: bool) -> Vec<String> {
    let below = |name: &str| format!("{DEVICES}/{device}/{name}");
    let text = |name: &str| files.line(&below(name)).ok();
    of_port(port, only, text, |name| files.names(&below(name)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_identifier_that_has_one_tells_the_interface() {
        let of = |only, told: &'static [(&'static str, &'static str)]| {
            let text = |path: &str| {
                let entry =
                    told.iter().find(|(at, _)| path == format!("ports/2/gid_attrs/ndevs/{at}"));
                entry.map(|(_, net)| (*net).to_owned())
            };
            of_port("2", only, text, |_| vec!["eth0".to_owned(), "eth1".to_owned()])
        };
        assert_eq!(of(true, &[("0", ""), ("3", "eth5"), ("4", "eth6")]), ["eth5"]);
        assert_eq!(of(true, &[("0", "../../etc")]), ["eth0", "eth1"]);
        // Which of a card's interfaces is that of one of several ports nobody tells.
        assert!(of(false, &[("16", "eth5")]).is_empty());
    }
}
