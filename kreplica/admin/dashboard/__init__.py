"""The dashboard: static files for a browser, without a framework, a build step or external resources.

* ``index.html`` the page's frame; ``initial_theme.js`` applies the theme before the first paint
* ``tokens.css`` colours, sizes and fonts; ``base.css`` elements; ``parts.css`` components; ``pages.css`` single pages
* ``app.js`` starts the routes, navigation and shortcuts
* ``shell/`` modules that live as long as the window: API calls, streams, cluster metrics, routes, theme, notifications
* ``parts/`` components: elements, tables, forms, charts, dialogs, previews of writes, labels
* ``pages/`` one module per page or part of a page, by subject; ``open(page)`` builds it and registers its cleanup

Modules use only the REST API. No module sets ``innerHTML``, so text never becomes markup.
"""
