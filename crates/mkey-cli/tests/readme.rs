//! `README.md` and `README.zh-CN.md` say the same: headings, code, outputs, links. An output of
//! `mkey` differs where its command asks for Chinese, and nowhere else.

mod common;

use common::{mkey, run};
use std::path::Path;

/// The English page.
const ENGLISH: &str = include_str!("../../../README.md");
/// The Chinese page.
const CHINESE: &str = include_str!("../../../README.zh-CN.md");
/// What asks for Chinese.
const IN_CHINESE: &str = " --lang zh";

/// A page, taken apart.
struct Page {
    /// Levels and texts.
    headings: Vec<(usize, String)>,
    blocks: Vec<Block>,
    /// Where the links of the prose lead.
    links: Vec<String>,
}

/// A code block.
struct Block {
    /// `sh`, `rust`, `text`.
    language: String,
    lines: Vec<String>,
}

impl Page {
    fn of(text: &str) -> Self {
        let mut page = Self { headings: Vec::new(), blocks: Vec::new(), links: Vec::new() };
        let mut open: Option<Block> = None;
        for line in text.lines() {
            match (open.take(), line.strip_prefix("```")) {
                (None, Some(language)) => {
                    open = Some(Block { language: language.to_owned(), lines: Vec::new() });
                }
                (None, None) => page.prose(line),
                (Some(block), Some(_)) => page.blocks.push(block),
                (Some(mut block), None) => {
                    block.lines.push(line.to_owned());
                    open = Some(block);
                }
            }
        }
        assert!(open.is_none(), "a code block without end");
        page
    }

    fn prose(&mut self, line: &str) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if let Some(title) = title.strip_prefix(' ').filter(|_| level > 0) {
            self.headings.push((level, title.to_owned()));
        }
        for rest in line.split("](").skip(1) {
            let (target, _) = rest.split_once(')').expect("a link without end");
            self.links.push(target.to_owned());
        }
    }

    /// The links in no order: headings by their numbers, as their names differ.
    fn places(&self, other: &str) -> Vec<String> {
        let place = |link: &String| match link.strip_prefix('#') {
            Some(wanted) => {
                let is_it = |(_, title): &(usize, String)| anchor(title) == wanted;
                let number = self.headings.iter().position(is_it);
                format!("heading {}", number.unwrap_or_else(|| panic!("no heading has #{wanted}")))
            }
            None if link == other => "the other language".to_owned(),
            None => link.clone(),
        };
        let mut places: Vec<String> = self.links.iter().map(place).collect();
        places.sort();
        places
    }
}

impl Block {
    /// What a shell or a compiler would see, without comments and empty lines.
    fn code(&self) -> Vec<&str> {
        let end = |line: &str| match self.language.as_str() {
            "sh" if line.starts_with('#') => 0,
            "sh" => line.find(" #").unwrap_or(line.len()),
            _ => line.find("//").unwrap_or(line.len()),
        };
        let lines = self.lines.iter().map(|line| line[..end(line)].trim_end());
        lines.filter(|line| !line.is_empty()).collect()
    }

    /// The commands of a session.
    fn commands(&self) -> Vec<&str> {
        self.lines.iter().filter_map(|line| line.strip_prefix("$ ")).collect()
    }
}

/// What a heading is linked by: as GitHub makes it.
fn anchor(title: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    title.to_lowercase().chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn pages() -> [Page; 2] {
    [Page::of(ENGLISH), Page::of(CHINESE)]
}

#[test]
fn each_leads_to_the_other_at_its_top() {
    assert_eq!(ENGLISH.lines().nth(2), Some("[中文](README.zh-CN.md)"));
    assert_eq!(CHINESE.lines().nth(2), Some("[English](README.md)"));
}

#[test]
fn both_have_the_same_headings() {
    let [levels, in_chinese] =
        pages().map(|page| page.headings.iter().map(|(level, _)| *level).collect::<Vec<usize>>());
    assert!(levels.len() > 1, "{levels:?}");
    assert_eq!(levels, in_chinese);
}

#[test]
fn both_have_the_same_code() {
    let [english, chinese] = pages();
    let languages = |page: &Page| {
        page.blocks.iter().map(|block| block.language.clone()).collect::<Vec<String>>()
    };
    assert_eq!(languages(&english), languages(&chinese));
    let is_code = |block: &&Block| block.language != "text";
    let all = english.blocks.iter().zip(&chinese.blocks).filter(|(block, _)| is_code(block));
    let mut lines = 0;
    for (english, chinese) in all {
        assert_eq!(english.code(), chinese.code());
        lines += english.code().len();
    }
    assert!(lines > 0);
}

#[test]
fn outputs_differ_only_where_chinese_is_asked_for() {
    let [english, chinese] = pages();
    let is_output = |block: &&Block| block.language == "text";
    let all = english.blocks.iter().zip(&chinese.blocks).filter(|(block, _)| is_output(block));
    let (mut same, mut translated) = (0, 0);
    for (english, chinese) in all {
        let commands = chinese.commands();
        if !commands.iter().any(|command| command.contains(IN_CHINESE)) {
            assert_eq!(english.lines, chinese.lines);
            same += 1;
            continue;
        }
        let plain: Vec<String> =
            commands.iter().map(|command| command.replacen(IN_CHINESE, "", 1)).collect();
        assert_eq!(english.commands(), plain);
        translated += 1;
    }
    assert!(same > 0 && translated > 0, "{same}, {translated}");
}

#[test]
fn both_lead_to_the_same_places_and_those_exist() {
    let [english, chinese] = pages();
    let places = english.places("README.zh-CN.md");
    assert!(places.len() > 1, "{places:?}");
    assert_eq!(places, chinese.places("README.md"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for link in english.links.iter().chain(&chinese.links) {
        let file = link.split('#').next().unwrap_or(link);
        let elsewhere = file.is_empty() || file.starts_with("https://");
        assert!(elsewhere || root.join(file).exists(), "{link} leads nowhere");
    }
}

/// This output is the same on every machine.
#[test]
fn an_explanation_is_what_mkey_prints() {
    let wanted = "mkey explain vendor 0x51";
    for (page, lang) in pages().into_iter().zip(["en", "zh"]) {
        let is_it = |block: &&Block| {
            let commands = block.commands();
            commands.iter().any(|command| command.replacen(IN_CHINESE, "", 1) == wanted)
        };
        let block = page.blocks.iter().find(is_it).expect("no such block");
        let arguments = ["explain", "--lang", lang, "vendor", "0x51"];
        let (code, stdout, stderr) = run(&mut mkey(&arguments));
        assert_eq!((code, stderr.as_str()), (0, ""));
        let shown: Vec<&str> = block.lines.iter().skip(1).map(String::as_str).collect();
        assert_eq!(shown, stdout.lines().collect::<Vec<&str>>());
    }
}
