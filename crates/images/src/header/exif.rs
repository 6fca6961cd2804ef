//! The one tag of EXIF that changes what is seen.

/// How the stored rows and columns are to be shown, as EXIF numbers it (1 to 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orientation(u8);

impl Default for Orientation {
    fn default() -> Self {
        Orientation(1)
    }
}

impl Orientation {
    pub fn new(number: u16) -> Option<Self> {
        (1..=8).contains(&number).then_some(Orientation(number as u8))
    }

    /// Rows are shown as columns.
    pub(crate) fn transposes(self) -> bool {
        self.0 >= 5
    }

    /// Which way the *stored* axes run: (columns from right to left, rows from bottom to top).
    pub(crate) fn mirrors(self) -> (bool, bool) {
        match self.0 {
            2 | 8 => (true, false),
            3 | 7 => (true, true),
            4 | 6 => (false, true),
            _ => (false, false),
        }
    }

    /// Reads tag 0x0112 of the first directory of a TIFF block, with or without the `Exif` prefix of JPEG.
    pub(super) fn of_exif(block: &[u8]) -> Option<Self> {
        let tiff = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
        let big = match tiff.get(..4)? {
            b"MM\0*" => true,
            b"II*\0" => false,
            _ => return None,
        };
        let short = |at: usize| -> Option<u16> {
            let pair: [u8; 2] = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
            Some(if big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) })
        };
        let long = |at: usize| -> Option<usize> {
            let (first, second) = (usize::from(short(at)?), usize::from(short(at + 2)?));
            Some(if big { first << 16 | second } else { second << 16 | first })
        };
        let directory = long(4)?;
        let entries = usize::from(short(directory)?);
        let at = (0..entries).map(|entry| directory + 2 + 12 * entry).find(|&at| short(at) == Some(0x0112))?;
        Orientation::new(short(at + 8)?)
    }
}
