//! What could be read, or why not.

use crate::lang::Lang;
use serde::{Deserialize, Serialize};

/// A value, or in words why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Told<T> {
    /// Why there is none.
    Not {
        /// In words.
        not_read: String,
    },
    /// The value.
    Is(T),
}

impl<T> Told<T> {
    /// Not read, for this reason.
    pub fn not(why: impl ToString) -> Self {
        Self::Not { not_read: why.to_string() }
    }

    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Not { .. } => None,
        }
    }

    /// Why there is none.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            Self::Is(_) => None,
            Self::Not { not_read } => Some(not_read),
        }
    }

    /// The value, to be changed.
    pub fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Not { .. } => None,
        }
    }
}

impl<T, E: ToString> From<Result<T, E>> for Told<T> {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(Self::not, Self::Is)
    }
}

/// What reasons are made of, and the same in Chinese.
const REASONS: [(&str, &str); 31] = [
    (
        "the kernel has no RDMA devices (no /sys/class/infiniband)",
        "内核没有 RDMA 设备（没有 /sys/class/infiniband）",
    ),
    (
        "the kernel's netlink has no such device in this namespace",
        "本命名空间的内核 netlink 没有这个设备",
    ),
    ("the kernel has no such RDMA device", "内核没有这个 RDMA 设备"),
    ("the kernel does not count them", "内核不统计"),
    ("the device did not answer when it was opened", "打开设备时没有应答"),
    ("not asked for", "没有询问"),
    ("not declared", "设备没有声明"),
    ("of the device as a whole", "属于整个设备"),
    ("irdma declares what is left, not the most", "irdma 给出的是剩余数，不是上限"),
    ("no network interface is told", "没有给出网络接口"),
    ("no such interface", "没有这个接口"),
    (
        "no pool can be read below /sys/kernel/mm/hugepages",
        "/sys/kernel/mm/hugepages 下没有读得到的大页池",
    ),
    (
        "no process is below /proc: not mounted, or not gathered",
        "/proc 下没有进程：没有挂载，或没有收集",
    ),
    (
        "/sys/class is not there: not mounted, or not gathered",
        "没有 /sys/class：没有挂载，或没有收集",
    ),
    ("leads out of the root", "指向根目录之外"),
    ("no file", "不是文件"),
    ("longer than", "超过"),
    ("it counts anew", "重新计数"),
    (
        "CAP_IPC_LOCK is held; in which user namespace can not be read",
        "持有 CAP_IPC_LOCK；读不到在哪个用户命名空间",
    ),
    ("no line \"Max locked memory\" that holds limits", "没有写明上限的“Max locked memory”行"),
    ("is no number", "不是数字"),
    (", for what no other file tells", "（其他文件没有的内容）"),
    ("No such file or directory", "没有这个文件或目录"),
    ("Permission denied", "没有权限"),
    ("Operation not permitted", "不允许的操作"),
    ("Operation not supported", "不支持的操作"),
    ("Is a directory", "是目录"),
    ("Invalid argument", "参数无效"),
    ("No such device", "没有这个设备"),
    ("Input/output error", "输入输出错误"),
    ("(os error ", "(errno "),
];

/// A reason, or a text with one in it, in a language.
pub fn in_words(text: &str, lang: Lang) -> String {
    if lang == Lang::En {
        return text.to_owned();
    }
    REASONS.iter().fold(text.to_owned(), |text, (en, zh)| text.replace(en, zh))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Told::not("...")` of the sources.
    #[test]
    fn each_reason_is_told_in_chinese_too() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/monitor");
        let mut seen = 0;
        for name in ["counter", "files", "kernel", "pinned", "ports", "sample"] {
            let source = std::fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap();
            let code = source.split("#[cfg(test)]").next().unwrap();
            let reasons =
                ["Told::not(\"", "nothing_told(\"", "let why = \"", "let not_counted = \""];
            for part in reasons.iter().flat_map(|begin| code.split(begin).skip(1)) {
                let end =
                    part.replace("\\\"", "\u{1}").split('"').next().unwrap().replace('\u{1}', "\"");
                let zh = in_words(&end, Lang::Zh);
                assert!(zh.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c)), "{end}: {zh}");
                seen += 1;
            }
        }
        assert!(seen >= 12, "{seen}");
        assert_eq!(in_words("x: not declared", Lang::En), "x: not declared");
    }

    #[test]
    fn both_are_written_and_read_again() {
        for (told, json) in
            [(Told::Is(7u64), "7"), (Told::not("no such file"), r#"{"not_read":"no such file"}"#)]
        {
            assert_eq!(serde_json::to_string(&told).unwrap(), json);
            assert_eq!(serde_json::from_str::<Told<u64>>(json).unwrap(), told);
        }
    }
}
