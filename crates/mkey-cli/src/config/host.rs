//! `mkey config host`: huge pages and locked memory of a Linux host, as files to put in place.

use super::recipe::{Block, Recipe};
use crate::bench::sizes::parse_bytes;
use crate::bench::units::size;
use clap::Args;

/// What to configure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey config host --hugepages 2MiB=16GiB --memlock unlimited
  mkey config host --hugepages 2MiB=8GiB,1GiB=32GiB --user storage --service target.service
  mkey config host --memlock 64GiB --user @rdma
  mkey config host --hugepages 2MiB=16GiB --json -")]
pub struct HostArgs {
    /// Huge pages of a size, and how much memory in them
    #[arg(long, value_name = "PAGE=MEMORY", value_delimiter = ',', value_parser = parse_huge)]
    pub hugepages: Vec<Huge>,

    /// How much memory a process may lock, which registering does: a size, or "unlimited"
    #[arg(long, value_name = "SIZE", default_value = "unlimited", value_parser = parse_memlock)]
    pub memlock: Memlock,

    /// Whom the limit is for: a user, or @ and a group
    #[arg(long, value_name = "USER", default_value = "*", value_parser = parse_user)]
    pub user: String,

    /// A systemd service that registers memory
    #[arg(long, value_name = "NAME", default_value = "NAME.service", value_parser = parse_service)]
    pub service: String,

    /// vm.max_map_count; only fork protection of libibverbs needs more than the default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(65_530..=2_147_483_647))]
    pub max_map_count: Option<u32>,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Huge {
    /// Bytes of a page.
    pub page: u64,
    /// Bytes in all.
    pub bytes: u64,
}

/// How much may be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memlock {
    /// No limit.
    Unlimited,
    /// Bytes, whole KiB.
    Bytes(u64),
}

/// The sizes of huge pages that x86-64 has.
const PAGES: [u64; 2] = [2 << 20, 1 << 30];

/// The configuration.
///
/// # Errors
/// What contradicts itself, each in words.
pub fn recipe(args: &HostArgs) -> Result<Recipe, Vec<String>> {
    let wrong = contradictions(args);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let mut blocks = Vec::new();
    if !args.hugepages.is_empty() {
        blocks.extend(huge_pages(&args.hugepages));
    }
    if let Some(most) = args.max_map_count {
        blocks.push(
            Block::new("Registering makes no mapping of its own. Only fork protection (ibv_fork_init, RDMAV_FORK_SAFE, IBV_FORK_SAFE) splits mappings, up to two more for each region; kernels of 5.12 and later do not need it, which \"rdma system show\" tells as copy-on-fork on.")
                .file("/etc/sysctl.d/90-mkey.conf")
                .line(format!("vm.max_map_count = {most}"))
                .verify("sysctl --system"),
        );
    }
    blocks.extend(locked_memory(args));
    let head = vec![
        "Files and a boot line, for review; put each where its heading says.".to_owned(),
        "Registering counts every page it touches against the limit, huge pages too, and a page as often as it is registered.".to_owned(),
    ];
    Ok(Recipe { head, blocks })
}

fn contradictions(args: &HostArgs) -> Vec<String> {
    let mut wrong = Vec::new();
    for page in PAGES {
        if args.hugepages.iter().filter(|huge| huge.page == page).count() > 1 {
            wrong.push(format!("huge pages of {} twice", size(page)));
        }
    }
    let huge = args.hugepages.iter().fold(0u64, |sum, huge| sum.saturating_add(huge.bytes));
    if let Memlock::Bytes(limit) = args.memlock
        && limit < huge
    {
        wrong.push(format!(
            "{} of huge pages, but only {} may be locked: huge pages count against the limit when they are registered, so not all of them could be",
            size(huge),
            size(limit)
        ));
    }
    wrong
}

fn huge_pages(pages: &[Huge]) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(huge) = pages.iter().find(|huge| huge.page == 2 << 20) {
        blocks.push(
            Block::new("2 MiB pages while the system runs; what can not be had any more (fragmentation) is missing without a word. For the default size of huge pages, which is 2 MiB unless the boot line says otherwise.")
                .file("/etc/sysctl.d/90-mkey.conf")
                .line(format!("vm.nr_hugepages = {}", huge.bytes / huge.page))
                .verify("sysctl --system")
                .verify("grep . /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
        );
    }
    let mut words = vec!["default_hugepagesz=2M".to_owned()];
    for (page, name) in PAGES.into_iter().zip(["2M", "1G"]) {
        if let Some(huge) = pages.iter().find(|huge| huge.page == page) {
            words.push(format!("hugepagesz={name} hugepages={}", huge.bytes / page));
        }
    }
    blocks.push(
        Block::new("From the start on, when memory is whole: the only dependable way to 1 GiB pages. On several nodes they are spread evenly.")
            .file("kernel command line (GRUB_CMDLINE_LINUX of /etc/default/grub)")
            .line(words.join(" "))
            .verify("cat /proc/cmdline"),
    );
    blocks
}

fn locked_memory(args: &HostArgs) -> Vec<Block> {
    let (kib, bytes) = match args.memlock {
        Memlock::Unlimited => ("unlimited".to_owned(), "infinity".to_owned()),
        Memlock::Bytes(bytes) => ((bytes / 1024).to_string(), bytes.to_string()),
    };
    let docker = match args.memlock {
        Memlock::Unlimited => "-1:-1".to_owned(),
        Memlock::Bytes(bytes) => format!("{bytes}:{bytes}"),
    };
    let user = &args.user;
    vec![
        Block::new("For sessions that log in by PAM (ssh, su), in KiB; not for services.")
            .file("/etc/security/limits.d/90-mkey.conf")
            .line(format!("{user} soft memlock {kib}"))
            .line(format!("{user} hard memlock {kib}"))
            .verify("ulimit -l"),
        Block::new("For a service, which limits.d does not reach; in force after systemctl daemon-reload and a restart. Slurm's: slurmd.service; Kubernetes has no setting of its own and hands on that of containerd.service, after which pods have to be made anew. CAP_IPC_LOCK does the same for root only, and not in a user namespace.")
            .file(format!("/etc/systemd/system/{}.d/90-mkey.conf", args.service))
            .line("[Service]")
            .line(format!("LimitMEMLOCK={bytes}"))
            .verify(format!("systemctl show {} --property LimitMEMLOCK", args.service)),
        Block::new("For a container, on its command line.")
            .file("command line")
            .tune(format!("docker run --ulimit memlock={docker}")),
    ]
}

fn parse_huge(text: &str) -> Result<Huge, String> {
    let (page, bytes) = text.split_once('=').ok_or("PAGE=MEMORY, as in 2MiB=16GiB, please")?;
    let (page, bytes) = (parse_bytes(page)?, parse_bytes(bytes)?);
    if !PAGES.contains(&page) {
        return Err("2MiB or 1GiB pages, please".to_owned());
    }
    if bytes == 0 || !bytes.is_multiple_of(page) || bytes > 1 << 50 {
        return Err(format!("{} is no whole number of pages of {}", size(bytes), size(page)));
    }
    Ok(Huge { page, bytes })
}

fn parse_memlock(text: &str) -> Result<Memlock, String> {
    if text == "unlimited" {
        return Ok(Memlock::Unlimited);
    }
    match parse_bytes(text)? {
        bytes if bytes < 64 << 10 => {
            Err("at least 64KiB, please: less does not open a device".to_owned())
        }
        bytes if bytes.is_multiple_of(1024) => Ok(Memlock::Bytes(bytes)),
        _ => Err("whole KiB, please".to_owned()),
    }
}

fn parse_user(text: &str) -> Result<String, String> {
    let name = text.strip_prefix('@').unwrap_or(text);
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if text == "*" || (!name.is_empty() && name.len() <= 32 && name.chars().all(fits)) {
        Ok(text.to_owned())
    } else {
        Err("a user, @ and a group, or *, please".to_owned())
    }
}

fn parse_service(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._@".contains(c);
    if text.ends_with(".service") && text.len() <= 128 && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("a name that ends in .service, please".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(hugepages: &[&str], memlock: &str) -> HostArgs {
        HostArgs {
            hugepages: hugepages.iter().map(|text| parse_huge(text).unwrap()).collect(),
            memlock: parse_memlock(memlock).unwrap(),
            user: "*".to_owned(),
            service: "x.service".to_owned(),
            max_map_count: None,
        }
    }

    #[test]
    fn huge_pages_that_could_not_be_registered_are_refused() {
        let wrong = recipe(&args(&["2MiB=16GiB"], "8MiB")).unwrap_err();
        assert!(wrong.len() == 1 && wrong[0].contains("16 GiB") && wrong[0].contains("8 MiB"));
        assert!(recipe(&args(&["2MiB=16GiB"], "16GiB")).is_ok());
        assert!(recipe(&args(&["2MiB=16GiB", "2MiB=2GiB"], "unlimited")).is_err());
    }

    #[test]
    fn values_that_no_file_could_hold_are_refused() {
        for bad in ["2MiB", "4MiB=4GiB", "2MiB=3", "1GiB=1.5GiB", "2MiB=0", "2MiB=x", "=", ""] {
            assert!(parse_huge(bad).is_err(), "{bad}");
        }
        for bad in ["0", "32KiB", "65537", "lots"] {
            assert!(parse_memlock(bad).is_err(), "{bad}");
        }
        assert!(parse_user("a b").is_err() && parse_user("@").is_err());
        assert!(parse_user("@rdma").is_ok());
        assert!(parse_service("x").is_err() && parse_service("a/b.service").is_err());
    }
}
