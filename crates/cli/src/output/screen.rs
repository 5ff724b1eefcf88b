//! The whole terminal as a screen, for `top`: taken over, drawn on, listened to, and always given back as it was.

use std::io::{self, BufWriter, IsTerminal as _, Read as _, Stdout};
use std::os::fd::AsFd as _;
use std::panic;
use std::time::Duration;

use ratatui::backend::{Backend as _, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::force_color_output;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::layout::Rect;

use super::terminal_is_dumb;
use taskqueue_engine::StopSignals;

/// Bytes of a frame that are written at once, and of keys that are read at once.
const FRAME: usize = 64 * 1024;
const KEYS: usize = 8 * 1024;

/// Why there is no terminal to draw on.
pub(crate) fn missing_terminal() -> Option<&'static str> {
    if !io::stdin().is_terminal() {
        Some("standard input is no terminal")
    } else if !io::stdout().is_terminal() {
        Some("standard output is no terminal")
    } else if terminal_is_dumb() {
        Some("the terminal is dumb")
    } else {
        None
    }
}

/// What came while it was waited.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScreenInput {
    Nothing,
    /// What keys sent.
    Bytes(Vec<u8>),
    /// The terminal has gone.
    End,
    /// A signal that wants this process to end.
    Stop,
}

/// The terminal, taken over until this is dropped. Not ratatui's own, which asks the terminal where its cursor is, and would read
/// keys for the answer.
pub(crate) struct Screen {
    backend: CrosstermBackend<BufWriter<Stdout>>,
    shown: Buffer,
    size: (u16, u16),
}

impl Screen {
    pub(crate) fn open(use_color: bool) -> io::Result<Self> {
        force_color_output(use_color);
        let writer = BufWriter::with_capacity(FRAME, io::stdout());
        let mut screen = Self { backend: CrosstermBackend::new(writer), shown: Buffer::default(), size: size()? };
        // What a panic says would be gone with the screen.
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            earlier(info);
        }));
        screen.take()?;
        Ok(screen)
    }

    /// Takes the terminal over, at first or again.
    pub(crate) fn take(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        self.clear()
    }

    /// Gives it back for a while.
    pub(crate) fn leave(&self) {
        give_back();
    }

    /// Draws all of it anew, next time.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.shown = Buffer::empty(Rect::new(0, 0, self.size.0, self.size.1));
        self.backend.clear()
    }

    /// Draws what is different from what was drawn before.
    pub(crate) fn draw(&mut self, render: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        let area = Rect::new(0, 0, self.size.0, self.size.1);
        if self.shown.area != area {
            self.clear()?;
        }
        let mut next = Buffer::empty(area);
        render(area, &mut next);
        self.backend.draw(self.shown.diff(&next).into_iter())?;
        self.backend.flush()?;
        self.shown = next;
        Ok(())
    }

    /// Columns and rows.
    pub(crate) const fn size(&self) -> (u16, u16) {
        self.size
    }

    /// Whether it has another size since the last question.
    pub(crate) fn has_resized(&mut self) -> bool {
        let now = size().unwrap_or(self.size);
        std::mem::replace(&mut self.size, now) != now
    }

    /// Waits for keys, for at most so long.
    pub(crate) fn listen(&self, stop: &StopSignals, limit: Duration) -> ScreenInput {
        let mut stdin = io::stdin();
        match stop.wait_or_read(Some(stdin.as_fd()), limit) {
            (true, _) => ScreenInput::Stop,
            (false, false) => ScreenInput::Nothing,
            (false, true) => {
                let mut bytes = vec![0; KEYS];
                match stdin.read(&mut bytes) {
                    Ok(0) => ScreenInput::End,
                    Ok(length) => {
                        bytes.truncate(length);
                        ScreenInput::Bytes(bytes)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => ScreenInput::Nothing,
                    Err(_) => ScreenInput::End,
                }
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// As it was. A terminal that has gone wants nothing back.
fn give_back() {
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
