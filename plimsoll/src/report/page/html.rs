//! Text into HTML without ever becoming markup.

/// A page that grows. `raw` takes markup of ours only; everything from outside goes through `text`.
pub struct Html {
    body: String,
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

/// Safe inside elements and inside attributes in double quotes.
pub fn escaped(text: &str) -> String {
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

/// `2700000` → `2,700,000`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let comma = |i: usize| i > 0 && (digits.len() - i).is_multiple_of(3);
    digits.chars().enumerate().flat_map(|(i, digit)| comma(i).then_some(',').into_iter().chain([digit])).collect()
}
