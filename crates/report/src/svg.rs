//! The few SVG elements that pictures are made of, and what all pictures share.

use std::fmt::{self, Write};

/// Text, quiet text, lines behind the data, and what must not be crossed.
pub(super) const INK: &str = "#222222";
pub(super) const FAINT: &str = "#777777";
pub(super) const GRID: &str = "#e4e4e4";
pub(super) const BUDGET: &str = "#b00020";

/// An SVG document that grows element by element.
pub(super) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Copy)]
pub(super) struct TextStyle {
    pub size: u32,
    pub bold: bool,
    pub colour: &'static str,
    pub anchor: Anchor,
}

pub(super) fn style(size: u32, colour: &'static str, anchor: Anchor) -> TextStyle {
    TextStyle { size, bold: false, colour, anchor }
}

/// The distance of an axis' lines: 1, 2 or 5 times a power of ten, so that there are about `lines` of them.
pub(super) fn nice_step(range: f64, lines: f64) -> f64 {
    let rough = range / lines;
    let power = 10f64.powf(rough.log10().floor());
    let fitting = [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= rough);
    fitting.unwrap_or(10.0) * power
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Svg {
        Svg { body: String::new(), width, height }
    }

    /// Writing to a string cannot fail.
    fn put(&mut self, element: fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        self.put(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"/>"#
        ));
    }

    /// `dash` as SVG writes it; empty for a solid line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64, dash: &str) {
        let dash = if dash.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{dash}""#) };
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}" stroke-width="{width}"{dash}/>"#
        ));
    }

    /// A filled outline with a tooltip.
    pub fn area(&mut self, outline: &str, fill: &str, tooltip: &str) {
        let tooltip = escaped(tooltip);
        self.put(format_args!(r#"<path d="{outline}" fill="{fill}"><title>{tooltip}</title></path>"#));
    }

    /// A line along an outline.
    pub fn stroke(&mut self, outline: &str, colour: &str, width: f64) {
        self.put(format_args!(
            r#"<path d="{outline}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>"#
        ));
    }

    /// A dot with a tooltip.
    pub fn point(&mut self, x: f64, y: f64, radius: f64, fill: &str, tooltip: &str) {
        let tooltip = escaped(tooltip);
        self.put(format_args!(
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{fill}" stroke="#ffffff" stroke-width="1.5"><title>{tooltip}</title></circle>"##
        ));
    }

    pub fn dot(&mut self, x: f64, y: f64, radius: f64, fill: &str) {
        self.put(format_args!(
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{fill}" stroke="#ffffff" stroke-width="1.5"/>"##
        ));
    }

    pub fn text(&mut self, x: f64, y: f64, style: TextStyle, text: &str) {
        let anchor = match style.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if style.bold { r#" font-weight="bold""# } else { "" };
        let (size, colour, text) = (style.size, style.colour, escaped(text));
        // The white outline keeps letters readable over areas and lines.
        self.put(format_args!(
            r##"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight} paint-order="stroke" stroke="#ffffff" stroke-width="3" stroke-linejoin="round">{text}</text>"##
        ));
    }

    pub fn finish(self, title: &str) -> String {
        let Svg { body, width, height } = self;
        let (title, dark) = (escaped(title), dark_rules());
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" role="img">
<title>{title}</title>
<style>@media (prefers-color-scheme: dark) {{ {dark} }}</style>
<rect width="{width}" height="{height}" fill="#ffffff"/>
{body}</svg>
"##
        )
    }
}

/// Paper, ink and lines of pictures, and what they are in the dark. Colours of data stay.
const IN_THE_DARK: [(&str, &str); 7] = [
    ("#ffffff", "#15181d"),
    (INK, "#e8e8e8"),
    (FAINT, "#9aa1aa"),
    (GRID, "#2c3138"),
    ("#bbbbbb", "#4a515a"),
    ("#aaaaaa", "#7c848e"),
    (BUDGET, "#ff6b81"),
];

/// A rule of a style sheet wins over an attribute: drawing need not know of the dark.
fn dark_rules() -> String {
    let rule =
        |(light, dark): (&str, &str)| format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}");
    IN_THE_DARK.into_iter().map(rule).collect()
}

/// Text that XML and HTML read as text, inside elements and inside attributes. Characters that XML forbids altogether
/// become a replacement mark.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_steps_are_round() {
        for (range, step) in [(8.0, 1.0), (14.0, 2.0), (100.0, 20.0), (0.9, 0.2), (1.6, 0.2)] {
            assert!((nice_step(range, 8.0) - step).abs() < 1e-9, "{range}: {}", nice_step(range, 8.0));
        }
    }

    #[test]
    fn text_cannot_break_out_of_the_document() {
        let style = TextStyle { size: 12, bold: false, colour: "#000000", anchor: Anchor::Start };
        let mut svg = Svg::new(10.0, 10.0);
        svg.text(0.0, 0.0, style, "</text><script>\u{1}&\"");
        let text = svg.finish("a<b");
        assert!(text.contains("&lt;/text&gt;&lt;script&gt;\u{FFFD}&amp;&quot;</text>"), "{text}");
        assert!(text.contains("<title>a&lt;b</title>"));
    }
}
