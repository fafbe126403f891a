//! `mkey explain`: what an error means, why it happens, what mends it.
//!
//! * [`texts`]: everything that is said, in two languages, each with its source; the files are in
//!   `texts/`. [`mod@find`]: what is asked about. [`vendor`], [`errno`]: numbers and names.
//! * [`process`], [`evidence`]: a live process, and what it says about a cause.
//! * [`report`] puts it together, [`text`] prints it, [`log`] annotates lines.

pub mod errno;
pub mod evidence;
pub mod find;
pub mod log;
pub mod process;
pub mod report;
pub mod text;
pub mod texts;
pub mod vendor;
pub mod words;

use crate::bench::export;
use crate::bench::sizes::parse_bytes;
use crate::cli::print;
use crate::exit::End;
use crate::lang::{Lang, LangArg};
use clap::Args;
use evidence::Asked;
use mkey_core::rights::Rights;
use report::Maker;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use texts::Library;

/// What to explain.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey explain ibv_reg_mr ENOMEM           a verb and its errno
  mkey explain \"ibv_reg_mr failed, errno=14\"  the same by number: errno=14, -14, returned -14, failed: 14
  mkey explain 12                          a completion status, by number, name or message
  mkey explain \"Failed status 4: wr_id 0 syndrom 0x51\"
  mkey explain vendor 0x51                 vendor_err of mlx5
  mkey explain IBV_EVENT_QP_ACCESS_ERR     an asynchronous event
  mkey explain out_of_sequence             a counter of a port, of its interface, of a region
  mkey explain key 0x2be                   what a key says, and what not
  mkey explain MK0008                      a code of mkey's own
  mkey explain ODP_SUPPORT                 a claim that is copied widely
  mkey explain ibv_reg_mr EFAULT --pid 4711 --addr 0x7f5e00000000 --len 2MiB --access local_write
  dmesg | mkey explain                     a log, annotated")]
pub struct ExplainArgs {
    /// What: see the examples. Without it, the log on standard input is annotated ("-" says so)
    #[arg(value_name = "WHAT", allow_negative_numbers = true)]
    pub what: Vec<String>,

    /// Look at this process, and rank the causes by what is seen
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,

    /// First address that it registers
    #[arg(long, value_name = "ADDRESS", requires_all = ["pid", "len"], value_parser = parse_address)]
    pub addr: Option<u64>,

    /// How much it registers: bytes, or with a unit as in 2MiB
    #[arg(long, value_name = "LENGTH", requires = "addr", value_parser = parse_length)]
    pub len: Option<u64>,

    /// With which rights: names as in local_write,remote_read, or the number
    #[arg(long, value_name = "RIGHTS", requires = "pid", value_parser = parse_access)]
    pub access: Option<Rights>,

    /// The language
    #[command(flatten)]
    pub lang: LangArg,

    /// Write it as JSON to FILE; "-" is standard output, without the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Explains.
///
/// # Errors
/// [`End`]: how the run ended before it was done; [`End::Usage`] for what nobody knows.
pub fn run(args: &ExplainArgs) -> Result<(), End> {
    let library = Library::load()?;
    let asked = Asked { range: args.addr.zip(args.len), access: args.access };
    let process = match args.pid {
        Some(pid) => {
            Some(process::read(Path::new("/"), pid, asked.span().as_ref(), args.lang.lang())?)
        }
        None => None,
    };
    let process = process.as_ref().map(|process| (process, &asked));
    let maker = Maker { library: &library, lang: args.lang.lang(), process };
    let log = args.what.is_empty() || args.what == ["-"];
    if log && process.is_none() {
        if args.json.is_some() {
            return Err(End::Usage(
                maker
                    .lang
                    .pick(
                        "--json is for WHAT and --pid, not for a log",
                        "--json 用于 WHAT 和 --pid，不用于日志",
                    )
                    .to_owned(),
            ));
        }
        if args.what.is_empty() && io::stdin().is_terminal() {
            let say = maker.lang.pick(
                "say what to explain, or give a log on standard input; ",
                "请写明要解释什么，或从标准输入给出日志；",
            );
            return Err(End::Usage(format!("{say}{}", examples(maker.lang))));
        }
        return log::annotate(&maker, io::stdin().lock(), io::stdout().lock());
    }
    let report = if log {
        maker.what_stands_against()
    } else {
        let found = find::find(&library, &args.what);
        if found.is_empty() {
            return Err(unknown(&library, &args.what, maker.lang));
        }
        if let Some(word) = words::stray(&library, &args.what) {
            return Err(stray(&library, &word, maker.lang));
        }
        let mut report = maker.report(&found);
        report.assumed = words::assumed(&library, &args.what, maker.lang);
        report
    };
    if let Some(path) = &args.json {
        export::write(path, &export::json(&report)?)?;
        if export::is_stdout(path) {
            return Ok(());
        }
    }
    print(text::report(&report).as_bytes())
}

/// What mends a question that nothing is like.
fn examples(lang: Lang) -> String {
    lang.pick("mkey explain --help has examples", "示例见 mkey explain --help").to_owned()
}

/// That something is not known, and what mends it.
fn not_known(what: &str, mend: &str, lang: Lang) -> End {
    End::Usage(match lang {
        Lang::En => format!("{what:?} is not known; {mend}"),
        Lang::Zh => format!("不认识 {what:?}；{mend}"),
    })
}

fn stray(library: &Library, word: &str, lang: Lang) -> End {
    if errno::magnitude(word).is_some() {
        let mend = lang.pick(
            "an errno by its number is told as in ibv_reg_mr errno=14, by its name as in ibv_reg_mr EFAULT",
            "errno 的编号写成 ibv_reg_mr errno=14 这样，名称写成 ibv_reg_mr EFAULT 这样",
        );
        return not_known(word, mend, lang);
    }
    let mend = match words::nearest(library, word) {
        Some(name) => match lang {
            Lang::En => format!("the nearest that is known is {name}"),
            Lang::Zh => format!("最接近的是 {name}"),
        },
        None if word.starts_with("ibv_") => {
            let verbs: Vec<String> = errno::verbs().map(|verb| format!("ibv_{verb}")).collect();
            let known = lang.pick("the verbs that are known are ", "认识的 verb 有 ");
            format!("{known}{}", verbs.join(", "))
        }
        None => words::wanted(library, &[word.to_owned()], lang).unwrap_or_else(|| examples(lang)),
    };
    not_known(word, &mend, lang)
}

fn unknown(library: &Library, what: &[String], lang: Lang) -> End {
    if let Some(wanted) = words::wanted(library, what, lang) {
        return End::Usage(wanted);
    }
    let text = what.join(" ");
    // Both are known, and not together.
    if let (Some(verb), Some(errno)) = (errno::verb_in_text(&text), find::errno_of(&text)) {
        return End::Usage(match lang {
            Lang::En => format!(
                "ibv_{verb} is not known to give {errno}; see mkey explain {errno}, mkey explain ibv_{verb}"
            ),
            Lang::Zh => format!(
                "不知道 ibv_{verb} 会返回 {errno}；见 mkey explain {errno}、mkey explain ibv_{verb}"
            ),
        });
    }
    let similar = find::similar(library, what);
    if similar.is_empty()
        && let Some(word) = words::stray(library, what)
    {
        return stray(library, &word, lang);
    }
    let mend = if similar.is_empty() {
        examples(lang)
    } else {
        format!("{}{}", lang.pick("there are ", "有 "), similar.join(", "))
    };
    not_known(&text, &mend, lang)
}

fn parse_address(text: &str) -> Result<u64, String> {
    find::number(text).ok_or_else(|| "an address, as in 0x7f5e00000000, please".to_owned())
}

fn parse_length(text: &str) -> Result<u64, String> {
    match find::number(text).map_or_else(|| parse_bytes(text), Ok)? {
        // The kernel refuses it before it looks at any page.
        0 => Err("at least 1 byte, please: nobody can register none (EINVAL)".to_owned()),
        length => Ok(length),
    }
}

fn parse_access(text: &str) -> Result<Rights, String> {
    if let Some(number) = find::number(text) {
        let bits = u32::try_from(number).map_err(|_| "32 bits at most, please")?;
        return Rights::from_verbs(bits).map_err(|reason| reason.to_string());
    }
    let mut rights = Rights::empty();
    for word in text.split([',', '|', '+']).map(str::trim).filter(|word| !word.is_empty()) {
        let name = word.to_ascii_uppercase();
        let name = name.strip_prefix("IBV_ACCESS_").unwrap_or(&name);
        // Local read is what every registration has.
        if name != "LOCAL_READ" {
            rights |= Rights::from_name(name).ok_or_else(|| {
                let names: Vec<&str> = Rights::all().iter_names().map(|(name, _)| name).collect();
                format!("{word:?} is no right: {}", names.join(", ").to_ascii_lowercase())
            })?;
        }
    }
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rights_by_name_and_number() {
        let both = Rights::LOCAL_WRITE | Rights::REMOTE_READ;
        for text in [
            "local_write,remote_read",
            "IBV_ACCESS_LOCAL_WRITE|IBV_ACCESS_REMOTE_READ",
            "0x5",
            "5",
            "local_read + local_write+remote_read",
        ] {
            assert_eq!(parse_access(text), Ok(both), "{text}");
        }
        assert_eq!(parse_access("0"), Ok(Rights::empty()));
        assert!(parse_access("all").unwrap_err().contains("remote_atomic"));
        assert!(parse_access("0x8000").is_err());
    }

    #[test]
    fn lengths_and_addresses() {
        assert_eq!(
            (parse_length("4096"), parse_length("0x1000"), parse_length("4KiB")),
            (Ok(4096), Ok(4096), Ok(4096))
        );
        for none in ["0", "0x0", "0KiB"] {
            assert!(parse_length(none).unwrap_err().contains("at least 1 byte"), "{none}");
        }
        assert_eq!(parse_address("0x7f5e00000000"), Ok(0x7f5e_0000_0000));
        assert!(parse_address("7fzz").is_err());
    }

    proptest! {
        #[test]
        fn no_argument_panics(text in ".{0,24}") {
            let _ = (parse_access(&text), parse_length(&text), parse_address(&text));
        }
    }
}
