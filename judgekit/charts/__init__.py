"""Charts as SVG that stands in any page, and pages of HTML with charts: they load nothing from anywhere.

What draws them is matplotlib, of the extra `report`, which is imported when a chart is drawn.
"""
