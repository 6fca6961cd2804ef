//! What can be wrong with one image, apart from which image it is.

/// Images of more pixels are refused before anything is allocated for them.
pub(crate) const MOST_PIXELS: u64 = 100_000_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageFault {
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("is none of PNG, JPEG, WebP, GIF and BMP")]
    UnknownFormat,
    #[error("is cut off: {0}")]
    Truncated(&'static str),
    #[error("is damaged: {0}")]
    Damaged(String),
    #[error("is an animated {0}")]
    Animated(&'static str),
    #[error("is a JPEG in CMYK colours")]
    Cmyk,
    #[error("is {width} × {height} pixels")]
    ZeroSized { width: u32, height: u32 },
    #[error("has {width} × {height} pixels, more than {} million", MOST_PIXELS / 1_000_000)]
    TooLarge { width: u32, height: u32 },
}

impl ImageFault {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "check the path and its permissions; paths in a table are relative to its folder",
            Self::UnknownFormat => "convert it to PNG or JPEG; the format is known by the contents, not by the name",
            Self::Truncated(_) | Self::Damaged(_) => {
                "fetch the file again, or set `on_bad_row = \"skip\"` to leave such images out"
            }
            Self::Animated(_) => "extract one frame, for example: magick 'image.gif[0]' image.png",
            Self::Cmyk => "convert it to RGB, for example: magick image.jpg -colorspace sRGB rgb.jpg",
            Self::ZeroSized { .. } => "replace the image, or set `on_bad_row = \"skip\"`",
            Self::TooLarge { .. } => "make it smaller first, for example: magick image.png -resize 4096x small.png",
        }
    }

    /// A read that found the end of the file is a truncation; everything else is the system's word.
    pub(super) fn of_io(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Truncated("the file ends inside its header"),
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

impl From<std::io::Error> for ImageFault {
    fn from(error: std::io::Error) -> Self {
        Self::of_io(&error)
    }
}
