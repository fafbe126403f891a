//! Which driver of the kernel a device is of.

use mkey_os::rdma_netlink;
use std::path::Path;

/// Soft-RoCE's.
pub(crate) const RXE: (&str, u32) = ("rxe", 14);
/// Drivers that are software, and how the kernel numbers them (`enum rdma_driver_id`,
/// include/uapi/rdma/ib_user_ioctl_verbs.h).
const SOFTWARE: [(&str, u32); 2] = [RXE, ("siw", 18)];

/// The driver of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    /// Its name, where the kernel tells.
    pub(crate) name: Option<String>,
    /// Whether it has no hardware.
    pub(crate) software: bool,
}

/// The driver of the device `name`.
pub(crate) fn of(name: &str) -> Driver {
    // Kernels before 5.3 do not tell, nor do some drivers.
    let id = rdma_netlink::driver_id(name).ok().flatten();
    told(Path::new("/"), name, id)
}

/// The driver by its number, by the kernel's folders below `root`, and, as the last, by how the
/// device calls itself, which anybody with the right to may rewrite. A device in software may lie
/// on a network card, whose driver is not its own, so the number comes first.
fn told(root: &Path, name: &str, id: Option<u32>) -> Driver {
    if let Some((name, _)) = SOFTWARE.iter().find(|(_, known)| Some(*known) == id) {
        return Driver { name: Some((*name).to_owned()), software: true };
    }
    let entry = root.join("sys/class/infiniband").join(name);
    if let Ok(link) = std::fs::read_link(entry.join("device/driver")) {
        let name = link.file_name().and_then(|name| Some(name.to_str()?.to_owned()));
        return Driver { name, software: false };
    }
    let words = std::fs::read_to_string(entry.join("node_desc")).unwrap_or_default();
    let name = Some(words.trim().to_owned()).filter(|words| !words.is_empty());
    // Hardware is on a bus.
    Driver { name, software: entry.exists() && !entry.join("device").exists() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_known_by_its_number_then_by_its_bus_and_last_by_its_words() {
        let root = std::env::temp_dir().join(format!("mkey-driver-{}", std::process::id()));
        let folder = |name: &str| root.join("sys/class/infiniband").join(name);
        let told = |name: &str, id| {
            let Driver { name, software } = told(&root, name, id);
            (name, software)
        };
        let named = |name: &str, software| (Some(name.to_owned()), software);
        std::fs::create_dir_all(folder("mlx5_0").join("device")).unwrap();
        std::fs::create_dir_all(folder("rxe0")).unwrap();
        let link = folder("mlx5_0").join("device/driver");
        std::os::unix::fs::symlink("/sys/drivers/mlx5_core", link).unwrap();
        assert_eq!(told("mlx5_0", Some(1)), named("mlx5_core", false));
        assert_eq!(told("mlx5_0", None), named("mlx5_core", false));
        // Soft-RoCE over the network port of such a card.
        assert_eq!(told("mlx5_0", Some(14)), named("rxe", true));
        std::fs::write(folder("rxe0").join("node_desc"), "storage, left\n").unwrap();
        assert_eq!(told("rxe0", Some(14)), named("rxe", true));
        assert_eq!(told("rxe0", Some(18)), named("siw", true));
        assert_eq!(told("rxe0", None), named("storage, left", true));
        assert_eq!(told("none", None), (None, false));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
