//! Counters of the kernel's devices, before and after.

use mkey_trace::format::Counter;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where the kernel lists its devices.
pub const DEVICES: &str = "/sys/class/infiniband";
/// No folder of the kernel's has more names than this.
const MOST: usize = 4096;

/// Counters by device and name.
pub type Counters = BTreeMap<(String, String), u64>;

/// Whether this host has a device of the kernel's.
pub fn has_device() -> bool {
    fs::read_dir(DEVICES).is_ok_and(|mut devices| devices.next().is_some())
}

/// What the counters below `devices` say: `hw_counters` of devices and of their ports. Those of a port of
/// several are named with it.
pub fn read(devices: &Path) -> Counters {
    let mut all = Counters::new();
    for device in names(devices) {
        let folder = devices.join(&device);
        let mut add = |folder: &Path, port: &str| {
            for name in names(&folder.join("hw_counters")) {
                let text = fs::read_to_string(folder.join("hw_counters").join(&name));
                // `lifespan` says how long the others stand before they are read anew.
                if let Some(value) = text.ok().and_then(|text| text.trim().parse().ok())
                    && name != "lifespan"
                {
                    all.insert((device.clone(), format!("{name}{port}")), value);
                }
            }
        };
        add(&folder, "");
        let ports = names(&folder.join("ports"));
        for port in &ports {
            let told = if ports.len() > 1 { format!(" (port {port})") } else { String::new() };
            add(&folder.join("ports").join(port), &told);
        }
    }
    all
}

/// Those that moved.
pub fn moved(before: &Counters, after: &Counters) -> Vec<Counter> {
    let moved = after.iter().filter_map(|(of, after)| {
        let before = before.get(of).copied()?;
        let (device, name) = of.clone();
        (before != *after).then_some(Counter { device, name, before, after: *after })
    });
    moved.collect()
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names =
        entries.flatten().take(MOST).filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_moved_are_told_by_device_and_port() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, value: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        };
        put("rxe0/ports/1/hw_counters/sent_pkts", "5\n");
        put("rxe0/ports/1/hw_counters/lifespan", "10\n");
        put("rxe0/ports/1/hw_counters/odd", "x\n");
        put("mlx5_0/hw_counters/out_of_buffer", "1\n");
        put("mlx5_0/ports/1/hw_counters/np_cnp_sent", "1\n");
        put("mlx5_0/ports/2/hw_counters/np_cnp_sent", "1\n");
        let before = read(root.path());
        assert_eq!(before.len(), 4);
        put("rxe0/ports/1/hw_counters/sent_pkts", "9\n");
        put("mlx5_0/ports/2/hw_counters/np_cnp_sent", "2\n");
        put("mlx5_0/ports/2/hw_counters/new", "2\n");
        let moved = moved(&before, &read(root.path()));
        let moved: Vec<_> =
            moved.iter().map(|c| (&*c.device, &*c.name, c.before, c.after)).collect();
        let expected = [("mlx5_0", "np_cnp_sent (port 2)", 1, 2), ("rxe0", "sent_pkts", 5, 9)];
        assert_eq!(moved, expected);
        assert!(read(&root.path().join("none")).is_empty());
    }
}
