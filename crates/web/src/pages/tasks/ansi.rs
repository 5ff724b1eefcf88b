//! The output of a handler as a browser shows it: colours and styles stay, every other escape sequence is dropped.

use anstyle_parse::{DefaultCharAccumulator, Params, Parser, Perform};
use maud::{Markup, html};

use taskqueue_domain::text::outside_text::clean_block;

/// The most parts of different styles; what follows is shown without. Each adds some 25 bytes to the page.
const MOST_PARTS: usize = 10_000;

/// Returns the text with its colours as classes of the style sheet.
pub(crate) fn coloured(text: &str) -> Markup {
    let (mut parser, mut screen) = (Parser::<DefaultCharAccumulator>::new(), Screen::default());
    for byte in text.bytes() {
        parser.advance(&mut screen, byte);
    }
    screen.end_part();
    html! {
        @for (style, text) in &screen.parts {
            @let class = style.class();
            @if class.is_empty() { (clean_block(text)) } @else { span class=(class) { (clean_block(text)) } }
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Style {
    /// One of the eight colours.
    colour: Option<u16>,
    /// 1 bold, 2 faint, 3 italic, 4 underlined: a bit each.
    effects: u8,
}

impl Style {
    fn class(self) -> String {
        let effects = (1..=4).filter(|effect| self.effects & (1 << effect) != 0).map(|effect| format!("b{effect}"));
        let colour = self.colour.map(|colour| format!("c{colour}"));
        effects.chain(colour).collect::<Vec<_>>().join(" ")
    }

    fn apply(&mut self, code: u16) {
        match code {
            0 => *self = Self::default(),
            1..=4 => self.effects |= 1 << code,
            22 => self.effects &= !0b110,
            23 => self.effects &= !0b1000,
            24 => self.effects &= !0b1_0000,
            30..=37 => self.colour = Some(code - 30),
            90..=97 => self.colour = Some(code - 90),
            39 => self.colour = None,
            _ => {}
        }
    }
}

/// What was printed so far, in parts of one style.
#[derive(Default)]
struct Screen {
    parts: Vec<(Style, String)>,
    style: Style,
    part: String,
}

impl Screen {
    fn end_part(&mut self) {
        let style = if self.parts.len() < MOST_PARTS { self.style } else { Style::default() };
        match self.parts.last_mut().filter(|(last, _)| *last == style) {
            Some((_, text)) => text.push_str(&std::mem::take(&mut self.part)),
            None if self.part.is_empty() => {}
            None => self.parts.push((style, std::mem::take(&mut self.part))),
        }
    }
}

impl Perform for Screen {
    fn print(&mut self, c: char) {
        self.part.push(c);
    }

    fn execute(&mut self, byte: u8) {
        if matches!(byte, b'\n' | b'\t') {
            self.part.push(char::from(byte));
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _ignore: bool, action: u8) {
        if action != b'm' || !intermediates.is_empty() {
            return;
        }
        self.end_part();
        let mut codes = params.iter().filter_map(|param| param.first().copied());
        while let Some(code) = codes.next() {
            match code {
                // Colours of a palette or by their parts are not shown, and must not be read as other codes.
                38 | 48 => {
                    let further = if codes.next() == Some(2) { 3 } else { 1 };
                    codes.by_ref().take(further).for_each(drop);
                }
                code => self.style.apply(code),
            }
        }
        if params.is_empty() {
            self.style = Style::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        coloured(text).into_string()
    }

    #[test]
    fn colours_become_classes_and_text_is_escaped() {
        assert_eq!(shown("\u{1b}[1;31mno\u{1b}[0m <b>\n"), "<span class=\"b1 c1\">no</span> &lt;b&gt;\n");
        assert_eq!(shown("\u{1b}[38;5;31mx\u{1b}[38;2;1;2;3my\u{1b}[m"), "xy");
    }

    #[test]
    fn every_other_sequence_is_dropped() {
        let osc = "a\u{1b}]8;;javascript:alert(1)\u{7}b\u{1b}]8;;\u{7}";
        assert_eq!(shown(osc), "ab");
        assert_eq!(shown("a\u{1b}[2J\u{1b}[Hb\u{7}\u{8}c\rd"), "abcd");
        assert!(!shown("\u{202e}abc\u{2066}").contains('\u{202e}'));
    }

    #[test]
    fn a_colour_for_each_character_does_not_make_a_page_of_spans() {
        assert_eq!(shown("\u{1b}[31ma\u{1b}[31mb\u{1b}[0;31mc"), "<span class=\"c1\">abc</span>");
        let page = shown(&"\u{1b}[31ma\u{1b}[32mb".repeat(MOST_PARTS));
        assert_eq!(page.matches("<span").count(), MOST_PARTS);
        assert!(page.ends_with(&"ab".repeat(MOST_PARTS / 2)), "nothing is lost");
    }
}
