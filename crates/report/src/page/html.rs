//! Text into HTML without ever becoming markup.

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
    pub fn new() -> Html {
        Html { body: String::new() }
    }

    pub fn raw(&mut self, markup: &str) -> &mut Html {
        self.body.push_str(markup);
        self
    }

    pub fn text(&mut self, text: &str) -> &mut Html {
        self.body.push_str(&escaped(text));
        self
    }

    /// A dotted name, which breaks at its dots if it must.
    pub fn dotted(&mut self, name: &str) -> &mut Html {
        self.body.push_str(&escaped(name).replace('.', ".<wbr>"));
        self
    }

    pub fn section(&mut self, title: &str, sub: &str) -> &mut Html {
        self.raw("<section><h2>").text(title).raw("</h2>");
        if !sub.is_empty() {
            self.raw("<p class=\"sub\">").text(sub).raw("</p>");
        }
        self
    }

    pub fn end_section(&mut self) -> &mut Html {
        self.raw("</section>\n")
    }

    /// A number with its name.
    pub fn tile(&mut self, name: &str, value: &str, sub: &str) -> &mut Html {
        self.raw("<div class=\"tile\"><span>").text(name).raw("</span><b>").text(value).raw("</b><small>").text(sub);
        self.raw("</small></div>")
    }

    pub fn finish(self) -> String {
        self.body
    }
}
