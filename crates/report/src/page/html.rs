//! Text into HTML without ever becoming markup.

#![deny(missing_docs)]

use crate::svg::escaped;

/// A page that grows. `raw` takes markup of ours only; everything from outside goes through `text`.
pub struct Html {
    body: String,
}

impl Default for Html {
    fn default() -> Html {
        Html::new()
    }
}

impl Html {
    /// Nothing yet.
    pub fn new() -> Html {
        Html { body: String::new() }
    }

    /// Markup of ours.
    pub fn raw(&mut self, markup: &str) -> &mut Html {
        self.body.push_str(markup);
        self
    }

    /// Text from anywhere.
    pub fn text(&mut self, text: &str) -> &mut Html {
        self.body.push_str(&escaped(text));
        self
    }

    /// A dotted name, which breaks at its dots if it must.
    pub fn dotted(&mut self, name: &str) -> &mut Html {
        self.body.push_str(&escaped(name).replace('.', ".<wbr>"));
        self
    }

    /// Begins a section.
    pub fn section(&mut self, title: &str, sub: &str) -> &mut Html {
        self.raw("<section><h2>").text(title).raw("</h2>");
        if !sub.is_empty() {
            self.raw("<p class=\"sub\">").text(sub).raw("</p>");
        }
        self
    }

    /// Ends it.
    pub fn end_section(&mut self) -> &mut Html {
        self.raw("</section>\n")
    }

    /// A number with its name.
    pub fn tile(&mut self, name: &str, value: &str, sub: &str) -> &mut Html {
        self.raw("<div class=\"tile\"><span>").text(name).raw("</span><b>").text(value).raw("</b><small>").text(sub);
        self.raw("</small></div>")
    }

    /// The markup.
    pub fn finish(self) -> String {
        self.body
    }
}
