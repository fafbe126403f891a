//! `cargo xtask vm`: virtual machines with a kernel's own RDMA stack, in place of RDMA hardware.

mod apt;
mod guest;
mod image;
mod kernel;
mod part;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;

pub use self::part::{links, part};

use self::guest::Guest;
use self::kernel::{Kernel, LINES, Line};
use crate::exit::Exit;
use crate::part::{Report, Unavailable};
use crate::workspace::Workspace;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask vm run --kernel 6.1 -- ibv_devinfo -v
  cargo xtask vm run --kernel 7 -- target/release/mkey devices
  cargo xtask vm run --kernel 7 --share /tmp/out -- bash -c 'dmesg > log'
  cargo xtask vm test --kernel 7 mkey-os accounting
  cargo xtask vm fetch

A guest is booted for one command, which runs as root with a soft-RoCE device, rxe0, and with this
machine's /usr and this workspace, both read-only. It takes some five seconds to come up, needs no
root and no KVM. Kernels are Debian's, fetched on first use by apt from this machine's mirror.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Fetch the newest kernels, in place of those that are kept
    Fetch {
        /// 6.1 or 7; both if none is given
        #[arg(value_parser = Line::named)]
        kernels: Vec<&'static Line>,
    },
    /// Run a command in a guest; its output and exit status are passed on
    #[command(after_help = "\
Exit status: the command's own; 124 if it took too long, 125 if the guest died, 3 if no guest can
be had here.")]
    Run {
        #[command(flatten)]
        like: Like,
        /// A folder that the guest has as /share, writable, and where the command begins; else it
        /// begins in the workspace
        #[arg(long, value_name = "FOLDER")]
        share: Option<PathBuf>,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Build a test target, and run it in a guest
    Test {
        #[command(flatten)]
        like: Like,
        package: String,
        /// The name of the test target, as for `cargo test --test`
        test: String,
        /// Arguments of the test binary
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
}

/// What the guest is like.
#[derive(clap::Args)]
struct Like {
    /// 6.1 (soft-RoCE without on-demand paging) or 7 (with it)
    #[arg(long, value_parser = Line::named)]
    kernel: &'static Line,
    /// The guest's memory
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    memory: u32,
    /// Its processors
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    processors: u32,
    /// How long the command may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
    /// An emulated IOMMU (intel-iommu), and behind it a device for VFIO (PCI 1234:11e8)
    #[arg(long)]
    iommu: bool,
}

/// `cargo xtask vm`.
pub fn run(workspace: &Workspace, args: Args) -> Result<Exit> {
    match done(workspace, args.what) {
        Err(error) if error.is::<Unavailable>() => {
            eprintln!("not to be had here: {error:#}");
            Ok(Exit::Skipped)
        }
        ended => ended,
    }
}

fn done(workspace: &Workspace, what: What) -> Result<Exit> {
    match what {
        What::Fetch { kernels } => {
            let all = LINES.iter().collect();
            for line in if kernels.is_empty() { all } else { kernels } {
                let kernel = Kernel::fetch(workspace, line)?;
                println!("{}: {} in {}", line.name, kernel.release, kernel.folder().display());
            }
            Ok(Exit::Well)
        }
        What::Run { like, share, command } => {
            guest::possible()?;
            let kernel = Kernel::get(workspace, like.kernel)?;
            let mut guest = like.guest(workspace, &kernel);
            if let Some(folder) = share {
                guest = guest.share(&folder)?;
            }
            Ok(Exit::Other(guest.run(&command)?.end.status()))
        }
        What::Test { like, package, test, arguments } => {
            guest::possible()?;
            let kernel = Kernel::get(workspace, like.kernel)?;
            let guest = like.guest(workspace, &kernel);
            let mut report = Report::default();
            part::run_test_binary(workspace, guest, &package, &test, &arguments, &mut report)?;
            for note in &report.notes {
                println!("{note}");
            }
            let tally = report.tally;
            Ok(Exit::of(tally.failed > 0, tally.skipped > 0, false))
        }
    }
}

impl Like {
    fn guest<'a>(&self, workspace: &Workspace, kernel: &'a Kernel) -> Guest<'a> {
        let mut guest = Guest::new(workspace, kernel);
        guest.memory_mib = self.memory;
        guest.processors = self.processors;
        guest.limit = Duration::from_secs(self.limit);
        guest.iommu = self.iommu;
        guest
    }
}
