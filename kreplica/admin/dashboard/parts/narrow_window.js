/** Windows that are as narrow as a phone's; the style sheets use the same width. */

export const narrowWindow = matchMedia("(max-width: 52rem)");
