"""What render.py sees with: light and air, the geometry of rays, and how everything in a town looks.

light.py      sun, weather, and how a device records it
eye.py        which way each pixel looks
scene.py      what is computed once per city
backdrop.py   the picture being drawn; sky, hills, stars
terrain.py    the ground, with the textures of surfaces.py
walls.py      the houses, with the textures of facades.py
figures.py    everything else: the shapes of shapes.py, put on pixels by fragments.py
weather.py    reflections, halos, rain and snow
"""
