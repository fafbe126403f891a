//! vendor_err of mlx5 in words.

use super::texts::Library;
use crate::lang::Lang;

/// What a value means and where that was read; `None` if nobody knows it.
pub fn decode(library: &Library, value: u8, lang: Lang) -> Option<(String, String)> {
    if let Some(entry) = library.entry(&format!("vendor/{value:#04x}")) {
        return Some((entry.meaning(lang).to_owned(), entry.source.clone()));
    }
    if (0xa0..=0xbf).contains(&value) {
        let entry = library.entry("vendor-rnr/0")?;
        let timer = value & 0x1f;
        let more = lang.pick("timer", "定时器");
        return Some((format!("{} ({more} {timer})", entry.meaning(lang)), entry.source.clone()));
    }
    let family = library.entry(&format!("vendor-base/{:#04x}", value & 0xf8))?;
    let detail = library.entry(&format!("vendor-detail/{}", value & 7))?;
    let (family_text, detail_text) = (family.meaning(lang), detail.meaning(lang));
    let text = match lang {
        Lang::En => format!("{family_text}: {detail_text}"),
        Lang::Zh => format!("{family_text}：{detail_text}"),
    };
    Some((text, family.source.clone()))
}

/// The completion status that a value comes with, where that is known from reports.
pub fn status_of(value: u8) -> Option<u32> {
    match value {
        0x81 | 0x83 | 0x85 => Some(12),
        0x87 => Some(13),
        0x88 => Some(10),
        0x89 => Some(11),
        0x8a => Some(9),
        0x93 => Some(16),
        0x51..=0x56 => Some(4),
        0xf9 => Some(5),
        _ => None,
    }
}

/// The completion status of a syndrome of mlx5's error CQE.
pub fn status_of_syndrome(syndrome: u8) -> u32 {
    match syndrome {
        0x01 => 1,
        0x02 => 2,
        0x04 => 4,
        0x05 => 5,
        0x06 => 6,
        0x10 => 7,
        0x11 => 8,
        0x12 => 9,
        0x13 => 10,
        0x14 => 11,
        0x15 => 12,
        0x16 => 13,
        0x22 => 16,
        _ => 21,
    }
}
