"""The dashboard: files for a browser, served as they are.  No framework, no build step, nothing from another host.

* ``index.html`` the landmarks that never change; ``first.js`` the theme, before anything is painted
* ``tokens.css`` colours, sizes and fonts, light and dark; ``base.css`` elements; ``parts.css`` what pages are made of;
  ``pages.css`` what one page alone has
* ``app.js`` starts it: routes, navigation, shortcuts
* ``shell/`` what lives as long as the window: asking the API, its streams, figures, routes, theme, spoken news
* ``parts/`` what pages are made of: elements, tables, forms, charts, dialogs, previews of writes
* ``pages/`` one module a page, or a part of one; ``open(page)`` builds it, and what it started ends with the page

Modules use the REST API alone.  Text becomes text and never markup: no module sets ``innerHTML``.
"""
