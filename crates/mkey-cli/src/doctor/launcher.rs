//! How a process was started, by its files: it decides where its limits come from.

use crate::files::Files;
use crate::process::variable;
use serde::Serialize;

/// What started a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Launcher {
    /// A shell of somebody who logged in, by PAM.
    Shell,
    /// systemd, as this unit.
    Systemd {
        /// Its name, as in `target.service`.
        unit: String,
    },
    /// The systemd of a user who logged in: what it starts has the limits of `user@.service`.
    SystemdUser {
        /// Its name, as in `train.service` or `vte-spawn.scope`.
        unit: String,
    },
    /// Docker, Podman, or a container like theirs.
    Docker,
    /// Kubernetes.
    Kubernetes,
    /// Slurm.
    Slurm,
    /// Nothing that tells it could be read.
    Unknown,
}

impl Launcher {
    /// Its name, which texts are looked up by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Systemd { .. } => "systemd",
            Self::SystemdUser { .. } => "systemd-user",
            Self::Docker => "docker",
            Self::Kubernetes => "kubernetes",
            Self::Slurm => "slurm",
            Self::Unknown => "unknown",
        }
    }

    /// Whether it is a container, whose `/sys` and settings are the host's.
    pub fn is_container(&self) -> bool {
        matches!(self, Self::Docker | Self::Kubernetes)
    }

    /// Whether a shell starts the program, in which limits can be raised before.
    pub fn has_shell(&self) -> bool {
        match self {
            Self::Shell | Self::Slurm | Self::Unknown => true,
            Self::SystemdUser { unit } => unit.ends_with(".scope"),
            Self::Systemd { .. } | Self::Docker | Self::Kubernetes => false,
        }
    }

    /// Of the process whose folder is `proc/PROCESS`.
    pub fn of(files: &Files, process: &str) -> Self {
        let groups = files.text(&format!("proc/{process}/cgroup"));
        let environment = files.text(&format!("proc/{process}/environ")).unwrap_or_default();
        let marked = files.exists(".dockerenv") || files.exists("run/.containerenv");
        match (Self::by(groups.as_deref().unwrap_or_default(), &environment, marked), groups) {
            (Self::Shell, Err(_)) => Self::Unknown,
            (launcher, _) => launcher,
        }
    }

    /// By its groups, its environment, and whether the file system is marked as a container's.
    fn by(groups: &str, environment: &str, marked: bool) -> Self {
        let says = |name| variable(environment, name).is_some_and(|value| !value.is_empty());
        let parts: Vec<&str> =
            groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).collect();
        let within = |word: &str| {
            parts.iter().any(|path| path.split('/').any(|part| part.starts_with(word)))
        };
        // A job's step may run containers, and a pod is one: what gives the limits comes first.
        if within("kubepods") || says("KUBERNETES_SERVICE_HOST") {
            return Self::Kubernetes;
        }
        let container = ["docker", "libpod", "cri-containerd", "nerdctl", "lxc", "buildkit"];
        if marked || says("container") || container.iter().any(|word| within(word)) {
            return Self::Docker;
        }
        if within("slurm") || within("job_") || says("SLURM_JOB_ID") {
            return Self::Slurm;
        }
        // The unit is the innermost one. Below user@1000.service it is one of the user's systemd.
        let units = parts.iter().filter_map(|path| {
            let units = path.split('/').filter(|part| is_unit(part) || part.ends_with(".scope"));
            let unit = units.clone().next_back()?.to_owned();
            if units.clone().any(|part| part.starts_with("user@") && is_unit(part)) {
                return Some(Self::SystemdUser { unit });
            }
            is_unit(&unit).then_some(Self::Systemd { unit })
        });
        units.into_iter().next().unwrap_or(Self::Shell)
    }
}

fn is_unit(part: &str) -> bool {
    part.ends_with(".service")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_tells_is_no_login() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
            std::fs::write(root.path().join("proc/self").join(name), text).unwrap();
        };
        let of = || Launcher::of(&Files::below(Some(root.path())).unwrap(), "self");
        assert_eq!(of(), Launcher::Unknown);
        put("environ", "SLURM_JOB_ID=7\0");
        assert_eq!(of(), Launcher::Slurm);
        put("environ", "A=1\0");
        assert_eq!(of(), Launcher::Unknown);
        put("cgroup", "0::/user.slice/user-0.slice/session-3.scope\n");
        assert_eq!(of(), Launcher::Shell);
    }

    #[test]
    fn each_way_to_be_started_is_told() {
        let unit = |unit: &str| Launcher::Systemd { unit: unit.to_owned() };
        let of_user = |unit: &str| Launcher::SystemdUser { unit: unit.to_owned() };
        for (groups, environment, marked, launcher) in [
            ("0::/user.slice/user-0.slice/session-3.scope\n", "", false, Launcher::Shell),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte.scope\n",
                "",
                false,
                of_user("vte.scope"),
            ),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/init.scope\n",
                "",
                false,
                of_user("init.scope"),
            ),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/t.service\n",
                "",
                false,
                of_user("t.service"),
            ),
            ("0::/system.slice/target.service\n", "", false, unit("target.service")),
            ("0::/system.slice/target.service/worker\n", "", false, unit("target.service")),
            ("9:name=systemd:/system.slice/a@b.service\n0::/\n", "", false, unit("a@b.service")),
            ("0::/system.slice/docker-5f.scope\n", "", false, Launcher::Docker),
            ("0::/\n", "", true, Launcher::Docker),
            ("0::/\n", "A=1\0container=podman\0", false, Launcher::Docker),
            (
                "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope\n",
                "",
                true,
                Launcher::Kubernetes,
            ),
            ("0::/\n", "KUBERNETES_SERVICE_HOST=10.0.0.1\0", true, Launcher::Kubernetes),
            (
                "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
                "",
                false,
                Launcher::Slurm,
            ),
            (
                "0::/user.slice/user-0.slice/session-3.scope\n",
                "SLURM_JOB_ID=7\0",
                false,
                Launcher::Slurm,
            ),
            ("", "", false, Launcher::Shell),
            ("garbage", "garbage", false, Launcher::Shell),
        ] {
            assert_eq!(
                Launcher::by(groups, environment, marked),
                launcher,
                "{groups} {environment}"
            );
        }
    }
}
